"""A traced step: where its operations ran, when, and how long a card waited.

On a card the times are those of its kernels if TensorFlow finds CUPTI; otherwise, and on the CPU,
those of the operations on the host's threads. The summary says which.
"""

import collections
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from benchmarks.gpu_stages import common

TRACED_STEP = 8  # after kernels were chosen and compiled
MOST_KINDS = 15
_EXCHANGES = re.compile(r"Nccl|AllReduce|Collective", re.IGNORECASE)
_NOT_WORK = re.compile("_SOURCE|_SINK|Iterator|_Recv|_Send")  # waiting, mostly
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # their bodies are traced, too


class Kernel(NamedTuple):
    """An interval of a device, in microseconds."""
    kind: str  # the operation's type
    start: float
    end: float


class Traced(tf.train.SessionRunHook):
    """Traces one step, then ends the training."""

    def __init__(self):
        self._steps = 0
        self.step_stats: Any = None

    def before_run(self, run_context):
        self._steps += 1
        level = tf.RunOptions.FULL_TRACE if self._steps == TRACED_STEP else tf.RunOptions.NO_TRACE
        return tf.train.SessionRunArgs([], options=tf.RunOptions(trace_level=level))

    def after_run(self, run_context, run_values) -> None:
        """Raises `Enough` after the traced step."""
        if self._steps == TRACED_STEP:
            self.step_stats = run_values.run_metadata.step_stats
            raise common.Enough()


def elsewhere(step_stats: Any, cards: Sequence[str]) -> List[str]:
    """The operations, in functions or not, that computed more than a scalar elsewhere than on cards."""
    names = [_short(card) for card in cards]
    return [f"{node.node_name} on {_short(device.device)}" for device in _hosts(step_stats)
            if _short(device.device) not in names for node in device.node_stats
            if not _NOT_WORK.search(node.node_name) and any(map(_is_large, node.output))]


def _is_large(output: Any) -> bool:
    described = output.tensor_description
    shape = tf.TensorShape([dimension.size for dimension in described.shape.dim])
    return tf.as_dtype(described.dtype).is_floating and shape.num_elements() > 1


def kernels(step_stats: Any) -> List[Kernel]:
    """What ran on the devices: the streams of cards if they were traced, else all operations."""
    streams = _streams(step_stats)
    return [Kernel(_kind(node), node.all_start_micros + (0 if streams else node.op_start_rel_micros),
                   node.all_start_micros + node.op_end_rel_micros)
            for device in streams or _hosts(step_stats) for node in device.node_stats
            if not _NOT_WORK.search(node.node_name) and _kind(node) not in _CALLS]


def _streams(step_stats: Any) -> List[Any]:
    return [device for device in step_stats.dev_stats if re.search(r"stream:\d+$", device.device)]


def _hosts(step_stats: Any) -> List[Any]:
    """The devices as the host's threads saw them."""
    return [device for device in step_stats.dev_stats
            if "stream" not in device.device and "memcpy" not in device.device]


def _short(name: str) -> str:
    return "".join(re.findall(r"[a-zA-Z]+:\d+$", name)).upper() or name


def _kind(node: Any) -> str:
    """MatMul of `layer/MatMul_1:MatMul` or of the label `... = MatMul(...)`."""
    match = re.search(r"= (\w+)\(", node.timeline_label) or re.search(r":(\w+)", node.node_name)
    return match.group(1) if match else re.sub(r"_\d+$", "", node.node_name.split("/")[-1])


def summary(step_stats: Any) -> Dict[str, Any]:
    """Milliseconds of the step, the share of it in which a device waited, and the time by kind."""
    ran = kernels(step_stats)
    by_kind: Dict[str, float] = collections.Counter()
    for kernel in ran:
        by_kind[kernel.kind] += kernel.end - kernel.start
    exchange = _busy(kernel for kernel in ran if _EXCHANGES.search(kernel.kind))
    compute = _busy(kernel for kernel in ran if not _EXCHANGES.search(kernel.kind))
    busy, span = _busy(ran), max(kernel.end for kernel in ran) - min(kernel.start for kernel in ran)
    return {"timed": "the card's kernels" if _streams(step_stats) else
            "threads of the host, not kernels (on a card: TensorFlow did not find libcupti)",
            "step_ms": span / 1e3, "kernels": len(ran), "idle_share": 1 - busy / span,
            "exchange_ms": exchange / 1e3,
            "of_it_beside_computation": (compute + exchange - busy) / exchange if exchange else None,
            "ms_by_kind": {kind: f"{micros / 1e3:.2f}" for kind, micros in sorted(
                by_kind.items(), key=lambda item: -item[1])[:MOST_KINDS]}}


def _busy(ran: Iterable[Kernel]) -> float:
    """How long at least one of them ran."""
    total, until = 0.0, 0.0
    for kernel in sorted(ran, key=lambda kernel: kernel.start):
        total += max(kernel.end - max(kernel.start, until), 0)
        until = max(until, kernel.end)
    return total

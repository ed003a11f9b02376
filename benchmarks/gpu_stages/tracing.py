"""A traced step: which kernels ran when, how long a card waited, what overlapped.

On a card the times are those of its kernels, if TensorFlow finds CUPTI; otherwise, and on the CPU,
those of the operations on the host's threads.
"""

import collections
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline

from benchmarks.gpu_stages import common

TRACED_STEP = 8  # after kernels were chosen and compiled
MOST_KINDS = 15
_EXCHANGES = re.compile(r"Nccl|AllReduce|Collective", re.IGNORECASE)
_NOT_WORK = re.compile("_SOURCE|_SINK|Iterator|_Recv|_Send")  # waiting, mostly
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # their bodies are traced, too
_WIDTH, _ROW = 1200, 24  # pixels


class Kernel(NamedTuple):
    """An interval of a device, in microseconds."""
    device: str
    kind: str  # the operation's type
    start: float
    end: float

    @property
    def is_exchange(self) -> bool:
        return bool(_EXCHANGES.search(self.kind))


class Traced(tf.train.SessionRunHook):
    """Traces one step, then ends the training."""

    def __init__(self):
        self._steps = 0
        self.step_stats: Any = None
        self.graph: Any = None

    def before_run(self, run_context):
        self._steps += 1
        level = tf.RunOptions.FULL_TRACE if self._steps == TRACED_STEP else tf.RunOptions.NO_TRACE
        return tf.train.SessionRunArgs([], options=tf.RunOptions(trace_level=level))

    def after_run(self, run_context, run_values) -> None:
        """Raises `Enough` after the traced step."""
        if self._steps == TRACED_STEP:
            self.step_stats = run_values.run_metadata.step_stats
            self.graph = run_context.session.graph
            raise common.Enough()


def kernels(step_stats: Any) -> List[Kernel]:
    """What ran on the devices: the streams of cards if they were traced, else all operations."""
    streams = [device for device in step_stats.dev_stats if re.search(r"stream:\d+$", device.device)]
    devices = streams or [device for device in step_stats.dev_stats if "stream" not in device.device
                          and "memcpy" not in device.device]
    return [Kernel(_short(device.device), _kind(node),
                   node.all_start_micros + (0 if streams else node.op_start_rel_micros),
                   node.all_start_micros + node.op_end_rel_micros)
            for device in devices for node in device.node_stats
            if not _NOT_WORK.search(node.node_name) and _kind(node) not in _CALLS]


def _short(name: str) -> str:
    found = re.search(r"([a-zA-Z]+:\d+)(/stream:\d+)?$", name)
    return (found.group(1).upper() + (found.group(2) or "")) if found else name


def _kind(node: Any) -> str:
    """MatMul of `layer/MatMul_1:MatMul` or of the label `... = MatMul(...)`."""
    found = re.search(r"= (\w+)\(", node.timeline_label) or re.search(r":(\w+)", node.node_name)
    return found.group(1) if found else re.sub(r"_\d+$", "", node.node_name.split("/")[-1])


def summary(ran: List[Kernel]) -> Dict[str, Any]:
    """Milliseconds of the step, the share of it in which a device waited, and the time by kind."""
    by_kind: Dict[str, float] = collections.Counter()
    for kernel in ran:
        by_kind[kernel.kind] += kernel.end - kernel.start
    compute = _union(kernel for kernel in ran if not kernel.is_exchange)
    exchange = _union(kernel for kernel in ran if kernel.is_exchange)
    busy, span = _union(ran), (max(kernel.end for kernel in ran) - min(kernel.start for kernel in ran))
    both = _length(compute) + _length(exchange) - _length(busy)
    return {"step_ms": span / 1e3, "kernels": len(ran), "idle_share": 1 - _length(busy) / span,
            "exchange_ms": _length(exchange) / 1e3,
            "of_it_beside_computation": both / _length(exchange) if exchange else None,
            "ms_by_kind": {kind: f"{micros / 1e3:.2f}" for kind, micros in sorted(
                by_kind.items(), key=lambda item: -item[1])[:MOST_KINDS]}}


def _union(ran: Iterable[Kernel]) -> List[Tuple[float, float]]:
    """The intervals in which at least one of them ran, in order."""
    merged: List[Tuple[float, float]] = []
    for kernel in sorted(ran, key=lambda kernel: kernel.start):
        if merged and kernel.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], kernel.end))
        else:
            merged.append((kernel.start, kernel.end))
    return merged


def _length(intervals: Iterable[Tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


def picture(ran: List[Kernel]) -> str:
    """The step as an SVG: a row for each device or stream, exchanges in red."""
    rows = sorted({kernel.device for kernel in ran})
    first, last = min(kernel.start for kernel in ran), max(kernel.end for kernel in ran)
    scale = (_WIDTH - 200) / (last - first)
    marks = [f'<text x="0" y="{_ROW * row + 16}">{name}</text>' for row, name in enumerate(rows)]
    marks += [f'<rect x="{200 + scale * (kernel.start - first):.1f}" '
              f'y="{_ROW * rows.index(kernel.device) + 2}" height="{_ROW - 4}" '
              f'width="{max(0.2, scale * (kernel.end - kernel.start)):.1f}" '
              f'fill="{"#c0392b" if kernel.is_exchange else "#2c7fb8"}">'
              f'<title>{kernel.kind}, {kernel.end - kernel.start:.0f} µs</title></rect>'
              for kernel in ran]
    height = _ROW * len(rows) + _ROW
    marks.append(f'<text x="200" y="{height - 8}">{(last - first) / 1e3:.1f} ms</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'font-family="sans-serif" font-size="13">{"".join(marks)}</svg>\n')


def chrome_trace(step_stats: Any) -> str:
    """For chrome://tracing or Perfetto."""
    return timeline.Timeline(step_stats).generate_chrome_trace_format()


def moved_in_functions(step_stats: Any, graph: tf.Graph, cards: Iterable[str]) -> List[str]:
    """What of functions' bodies ran elsewhere than on the cards and returned more than a scalar.

    Args:
        cards: such as "GPU:0".
    """
    names = {node.name for function in graph.as_graph_def().library.function
             for node in function.node_def}
    return [f"{node.node_name} on {_short(device.device)}"
            for device in step_stats.dev_stats if "stream" not in device.device
            and _short(device.device) not in cards
            for node in device.node_stats
            if node.node_name.split(":")[0] in names and any(map(_is_large, node.output))]


def _is_large(output: Any) -> bool:
    described = output.tensor_description
    elements = 1
    for dimension in described.shape.dim:
        elements *= dimension.size
    return tf.as_dtype(described.dtype).is_floating and elements > 1

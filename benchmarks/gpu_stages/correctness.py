"""Whether a card trains at all, and as the CPU does."""

import functools
import multiprocessing
import tempfile
from concurrent import futures
from typing import Any, Dict, Optional, Tuple

import numpy as np

from benchmarks import startup
from benchmarks.gpu_stages import common
from benchmarks.gpu_stages.common import Cell, Machine

import tensorflow.compat.v1 as tf
from encoder import classifier
from engine.devices.devices import BFLOAT16, FLOAT16, FLOAT32, Devices, DeviceSettings, find_devices

BATCH, STEPS = 16, 20
# The largest share of the weights' change in which a training may differ from float32 on the CPU. In
# bfloat16 on the CPU it is 0.03.
SHARES = {FLOAT32: 0.01, FLOAT16: 0.03, BFLOAT16: 0.15}
Values = Dict[str, np.ndarray]  # by the names of the variables


def right(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """The weights after some steps on a card, beside those after the same steps on the CPU."""
    start, expected = _on_cpu(machine)
    common.prepare(cell)
    _, values = _trained(machine, cell, machine.devices(cell))
    share = float(_distance(values, expected) / _distance(start, expected))
    return {"ok": share <= SHARES[cell.precision], "share of the weights' change": share,
            "largest difference of a weight":
                max(float(np.abs(values[name] - expected[name]).max()) for name in start)}


@functools.lru_cache()
def _on_cpu(machine: Machine) -> Tuple[Values, Values]:
    cell = Cell("fine-tuning", "mini", 64, FLOAT32)
    # A process of its own: how many threads TensorFlow has is decided once in a process.
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), common.prepare, (cell,)
                                     ) as process:
        return process.submit(_trained, machine, cell).result()


def _trained(machine: Machine, cell: Cell, devices: Optional[Devices] = None
             ) -> Tuple[Values, Values]:
    """The weights before and after some steps with clipping, without dropout; None: on the CPU."""
    config = machine.config(cell.size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    source = common.examples(config, machine.length(cell.length), label_ids=common.classes)
    forward, devices = classifier.forward_of(config, 2), devices or find_devices(DeviceSettings(num_cpu_replicas=1))
    with common.saved_model(forward, source) as start, tempfile.TemporaryDirectory() as directory:
        common.train(cell, BATCH // devices.num_replicas, forward, source, devices, STEPS, directory,
                     start)
        before, after = tf.train.load_checkpoint(start.path), tf.train.load_checkpoint(directory)
        return tuple({name: reader.get_tensor(name) for name in start.shapes}
                     for reader in (before, after))


def _distance(values: Values, others: Values) -> float:
    return np.sqrt(sum(float(np.square(values[name] - others[name]).sum()) for name in values))


def command(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """Seconds from the start of run_classifier to the end of its first step, one card and all."""
    answer: Dict[str, Any] = {"ok": True}
    for count in sorted({1, machine.num_cards}):
        with tempfile.TemporaryDirectory() as directory:
            flags = startup.write_task(directory, machine.config(cell.size).to_dict(),
                                       machine.length(cell.length), count=400)
            answer[f"seconds with {count}"] = startup.our_seconds([
                *flags, "--train_batch_size=4", f"--precision={cell.precision}",
                f"--num_{'cpu_replicas' if machine.toy else 'gpus'}={count}"])
    return answer

"""Whether a card computes what the CPU does: placement, replicas, a NaN, an interruption."""

import collections
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from benchmarks import report
from benchmarks.gpu_stages import common, tracing
from benchmarks.gpu_stages.common import Machine

import tensorflow.compat.v1 as tf
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.devices.devices import Devices, find_devices
from engine.errors import UserError
from engine.model import Forward, Mode, Outputs
from engine.training.settings import FLOAT16, FLOAT32

BATCH, STEPS = 16, 20
SMALL_COPY = 64  # bytes; a smaller copy between host and card is not listed
_SLOTS = ("adam_m", "adam_v")
TOLERANCE = 1e-5  # of variables, as in the tests


def first_step(machine: Machine) -> Dict[str, Any]:
    """One small training: whether a card works at all, and how long its first step takes."""
    config, length = machine.config("mini"), machine.length(64)
    source = common.examples(config, length, label_ids=common.classes)
    common.prepare(FLOAT32)
    measured = common.measure(classifier.forward_of(config, 2), source, machine.devices(),
                              common.settings(8, precision=FLOAT32), 3)
    return {"ok": True, "first_step_seconds": measured.first_step_seconds,
            "step_seconds": measured.step_seconds}


class _Partitions(tf.train.SessionRunHook):
    """The graphs that the second step ran, one for each device, and what was asked for."""

    def __init__(self):
        self._steps = 0
        self.nodes: List[Any] = []

    def before_run(self, run_context):
        self._steps += 1
        wanted = tf.RunOptions()
        if self._steps == 2:
            wanted = tf.RunOptions(output_partition_graphs=True,
                                   trace_level=tf.RunOptions.FULL_TRACE)
        return tf.train.SessionRunArgs([], options=wanted)

    def after_run(self, run_context, run_values) -> None:
        if self._steps == 2:
            self.graph = run_context.session.graph
            self.step_stats = run_values.run_metadata.step_stats
            self.nodes = [node for graph in run_values.run_metadata.partition_graphs
                          for node in graph.node]
            raise common.Enough()


def placement(machine: Machine) -> Dict[str, Any]:
    """Where the nodes of a fine-tuning step ran, and what moved between host and card."""
    config, length = machine.config("base"), machine.length(128)
    source = common.examples(config, length, label_ids=common.classes)
    devices, partitions = machine.devices(), _Partitions()
    forward = classifier.forward_of(config, 2)
    with common.saved_model(forward, source) as start, tempfile.TemporaryDirectory() as directory:
        with contextlib.suppress(common.Enough):
            common.train(forward, source, devices, common.settings(machine.length(32)), 10,
                         directory, start, [partitions])
    asked = {op.name: _device(op.device) for op in partitions.graph.get_operations() if op.device}
    moved = [f"{node.op} {node.name}: {_device(node.device)}" for node in partitions.nodes
             if node.name in asked and asked[node.name] != _device(node.device)
             and "Iterator" not in node.op]
    moved += tracing.moved_in_functions(partitions.step_stats, partitions.graph,
                                        [_device(name) for name in devices.names])
    updates = collections.Counter(_device(node.device) for node in partitions.nodes
                                  if node.op == "ResourceApplyAdam")
    copies = _copies(partitions)
    return {"ok": not moved and set(updates) == {_device(devices.names[0])},
            "nodes": collections.Counter(_device(node.device) for node in partitions.nodes),
            "updates": updates, "moved": moved, "copies": len(copies),
            "large_copies": [copy for copy in copies if not copy.endswith(" bytes")
                             or int(copy.split()[-2]) > SMALL_COPY]}


def _device(name: str) -> str:
    """'GPU:0', of any form of a device's name."""
    found = re.search(r"([a-zA-Z]\w*):(\d+)$", name)
    return f"{found.group(1).upper()}:{found.group(2)}" if found else name


def _copies(partitions: _Partitions) -> List[str]:
    """The tensors of a step that went from one device to another, with their sizes if known."""
    copies = []
    for node in partitions.nodes:
        if node.op not in ("_Recv", "_HostRecv"):
            continue
        source, target = _device(node.attr["send_device"].s.decode()), _device(node.device)
        name = re.sub(r"^edge_\d+_", "", node.attr["tensor_name"].s.decode())
        size = _size_of(partitions.graph, name, tf.as_dtype(node.attr["tensor_type"].type))
        copies.append(f"{source} -> {target} {name}{size}")
    return copies


def _size_of(graph: tf.Graph, name: str, dtype: tf.DType) -> str:
    try:
        shapes = [tensor.shape for tensor in graph.get_operation_by_name(name).outputs]
    except KeyError:  # made by the placer
        return ""
    if len(shapes) != 1 or not shapes[0].is_fully_defined():
        return ""
    return f" {shapes[0].num_elements() * dtype.size} bytes"


def equivalence(machine: Machine) -> Dict[str, Any]:
    """2 × B on one card against 1 × 2B on it and on the CPU; float32, no dropout."""
    config = machine.config("mini", **common.NO_DROPOUT)
    source = common.examples(config, machine.length(64), label_ids=common.classes)
    forward = classifier.forward_of(config, 2)
    with common.saved_model(forward, source) as start:
        runs = {name: common.apart(_trained, machine, start, *how)
                for name, how in (("1 × 2B", (1, True)), ("2 × B", (2, True)),
                                  ("the CPU", (1, False)))}
    answer = {f"2 × B − 1 × 2B: {what}": value for what, value in _differences(
        runs["2 × B"], runs["1 × 2B"]).items()}
    answer.update({f"card − CPU: {what}": value for what, value in _differences(
        runs["1 × 2B"], runs["the CPU"]).items()})
    return {"ok": max(value for name, value in answer.items() if "variables" in name) <= TOLERANCE,
            **answer}


def _trained(machine: Machine, start: checkpoints.Checkpoint, num_replicas: int,
             on_cards: bool) -> Dict[str, np.ndarray]:
    """All variables and slots after some steps with clipping."""
    common.prepare(FLOAT32)
    config = machine.config("mini", **common.NO_DROPOUT)
    source = common.examples(config, machine.length(64), label_ids=common.classes)
    devices = (machine.devices(replicas_per_gpu=num_replicas) if on_cards
               else find_devices(num_cpu_replicas=num_replicas))
    with tempfile.TemporaryDirectory() as directory:
        common.train(classifier.forward_of(config, 2), source, devices,
                     common.settings(BATCH // num_replicas, precision=FLOAT32), STEPS, directory,
                     start)
        return _values(directory)


def _values(directory: str) -> Dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(directory)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def _differences(some: Dict[str, np.ndarray], others: Dict[str, np.ndarray]) -> Dict[str, float]:
    """The largest difference of a variable, and of a slot as a share of the largest of its kind.

    (Of its own largest value it says nothing: a key's bias has a gradient of 0, and its slots are
    what rounding leaves of it.)
    """
    assert sorted(some) == sorted(others)
    found: Dict[str, float] = {"variables": 0.0, "slots": 0.0}
    largest = {kind: max(float(np.abs(value).max()) for name, value in others.items()
                         if name.endswith(kind)) for kind in _SLOTS}
    for name, value in others.items():
        difference = float(np.abs(value - some[name]).max())
        kind = next(filter(name.endswith, _SLOTS), None)
        if kind:
            found["slots"] = max(found["slots"], difference / largest[kind])
        else:
            found["variables"] = max(found["variables"], difference)
    return found


def not_a_number(machine: Machine) -> Dict[str, Any]:
    """A loss that is NaN in step 4: the end of the training in float32, skipped in float16."""
    devices = machine.devices()
    with tempfile.TemporaryDirectory() as directory:
        said = _train_with_nan(machine, devices, FLOAT32, directory)
        kept = checkpoints.latest(directory)
        ends = said.startswith("the loss of step 4 is nan") and kept.global_step == 3
    with tempfile.TemporaryDirectory() as directory:
        error = _train_with_nan(machine, devices, FLOAT16, directory)
        before, after, end = (_values(os.path.join(directory, checkpoints.checkpoint_name(step)))
                              for step in (3, 4, 6))
    names = [name for name in before if "/" in name and "loss_scale" not in name]
    unchanged = all((before[name] == after[name]).all() for name in names)
    goes_on = all(np.isfinite(end[name]).all() for name in names) and any(
        (end[name] != after[name]).any() for name in names)
    return {"ok": ends and not error and unchanged and goes_on, "float32 said": said,
            "float16 changed nothing": unchanged, "float16 went on": goes_on, "float16 said": error}


def _train_with_nan(machine: Machine, devices: Devices, precision: str, directory: str) -> str:
    """The message of the training's end; empty after its last step."""
    config = machine.config("mini")
    source = common.examples(config, machine.length(64), label_ids=common.classes)
    how = common.settings(8, precision=precision, save_checkpoints_steps=1, keep_checkpoint_max=10)
    try:
        common.train(_nan_in_step_4(classifier.forward_of(config, 2)), source, devices, how, 6,
                     directory)
    except UserError as error:
        return str(error)
    return ""


def _nan_in_step_4(forward: Forward) -> Forward:
    def with_nan(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        outputs = forward(features, mode)
        step = tf.cast(tf.train.get_global_step(), tf.int64)
        return outputs._replace(loss=outputs.loss * tf.where(tf.equal(step, 3), np.nan, 1.0))
    return with_nan


def interruption(machine: Machine) -> Dict[str, Any]:
    """A command ended by SIGTERM and started again, against one that was left alone."""
    with tempfile.TemporaryDirectory() as directory:
        flags = [*write_task(machine, directory), *machine.device_flags(),
                 f"--precision={FLOAT32}", "--train_batch_size=8", "--num_train_epochs=2"]
        whole, cut = (os.path.join(directory, name) for name in ("whole", "cut"))
        _run(flags, whole)
        status, _ = _run(flags, cut, signal_at="step 1/")
        stopped_at = checkpoints.latest(cut).global_step
        resumed_status, log = _run(flags, cut)
        difference = _differences(_values(cut), _values(whole))
    return {"ok": status == 128 + signal.SIGTERM and resumed_status == 0 and "Resuming" in log
            and difference["variables"] <= TOLERANCE,
            "status": status, "stopped at step": stopped_at, **difference}


def _run(flags: List[str], output_dir: str, signal_at: Optional[str] = None) -> Tuple[int, str]:
    """Exit status and log of run_classifier; SIGTERM after the first line with a certain start."""
    process = subprocess.Popen(
        [sys.executable, "run_classifier.py", *flags, f"--output_dir={output_dir}"],
        cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True)
    log = ""
    for line in process.stderr:
        log += line
        if signal_at and line.startswith(signal_at):
            process.send_signal(signal.SIGTERM)
    return process.wait(), log


def write_task(machine: Machine, directory: str, size: str = "mini", count: int = 400
               ) -> List[str]:
    """Writes a task in CoLA's layout and a model's description; returns the flags to train."""
    config = machine.config(size)
    words = ["".join(chr(97 + int(digit)) for digit in f"{number:05d}")
             for number in range(config.vocab_size - 5)]
    vocabulary, shape = (os.path.join(directory, name)
                         for name in ("vocab.txt", "bert_config.json"))
    with open(vocabulary, "w") as file:
        file.writelines(f"{word}\n" for word in [
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    with open(shape, "w") as file:
        json.dump(config.to_dict(), file)
    generator, length = random.Random(0), machine.length(128)
    with open(os.path.join(directory, "train.tsv"), "w") as file:
        for number in range(count):
            text = " ".join(generator.choice(words) for _ in range(length - 2))
            file.write(f"x\t{number % 2}\t\t{text}\n")
    return ["--task_name=cola", "--do_train", f"--data_dir={directory}",
            f"--vocab_file={vocabulary}", f"--bert_config_file={shape}",
            f"--max_seq_length={length}", f"--store_dir={directory}"]

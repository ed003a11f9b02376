"""How fast cards are: trainings, a peer's, where a step's time goes."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Tuple

import numpy as np

from benchmarks import report, scaling
from benchmarks.gpu_stages import common, tracing
from benchmarks.gpu_stages.common import Cell, Machine

import modeling
import tensorflow.compat.v1 as tf
from encoder import classifier
from engine.data.batches import Source
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.model import Forward
from pretraining import model as pretraining_model
from tensorflow.python.client import timeline

TOY_CARDS = 2
WARM_UP_STEPS, TIMED_STEPS = 5, 20
FINE_TUNING, PRETRAINING = "fine-tuning", "pretraining"
TOKENS_PER_STEP = {FINE_TUNING: 4096, PRETRAINING: 8192}  # of a card; as in docs/results.md
# Belongs to the bundle or environment of our Python: another one may not even start with it.
OURS = ("PYTHONHOME", "PYTHONPATH", "PYTHONNOUSERSITE")


class Clock(tf.train.SessionRunHook):
    """Remembers when each step ended; ends the training after the timed ones."""

    def __init__(self):
        self.ends: List[float] = []

    def after_run(self, run_context, run_values) -> None:
        """Raises `Enough` after the last step."""
        self.ends.append(time.time())
        if len(self.ends) == WARM_UP_STEPS + TIMED_STEPS:
            raise common.Enough()


def training(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """Fine-tuning, or both objectives of pretraining; all tokens full."""
    clock, start = Clock(), time.time()
    devices, flops = _train(cell, machine, clock)
    seconds = (clock.ends[-1] - clock.ends[WARM_UP_STEPS - 1]) / TIMED_STEPS
    batch = _batch(cell, machine)
    rate = batch * devices.num_replicas / seconds
    return {"batch": batch, "sequences_per_second": rate, "step_ms": 1e3 * seconds,
            "tflops": rate * flops / 1e12, "memory_gb": devices.peak_memory_gb(),
            "first_step_seconds": clock.ends[0] - start}


def _train(cell: Cell, machine: Machine, hook: tf.train.SessionRunHook) -> Tuple[Devices, float]:
    """Trains until the hook ends it; returns the devices and the operations of an example's step."""
    common.prepare(cell)
    devices = machine.devices(cell)
    forward, source, flops = _training(cell, machine)
    if devices.kind == "GPU" and not runtime.IS_TENSORFLOW_1:
        for index in range(devices.num_replicas):
            tf.config.experimental.reset_memory_stats(f"GPU:{index}")
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(common.Enough):
        common.train(cell, _batch(cell, machine), forward, source, devices, 10 ** 6, directory,
                     hooks=[hook])
    return devices, flops


def _batch(cell: Cell, machine: Machine) -> int:
    return 4 if machine.toy else TOKENS_PER_STEP[cell.task] // cell.length


def _training(cell: Cell, machine: Machine) -> Tuple[Forward, Source, float]:
    """The model, its examples, and the floating-point operations of an example's step."""
    config, length = machine.config(cell.size), machine.length(cell.length)
    if cell.task == FINE_TUNING:
        return (classifier.forward_of(config, 2),
                common.examples(config, length, label_ids=common.classes), _flops(config, length))
    count = max(length * 20 // 128, 2)  # masked tokens, as in Google's and NVIDIA's pretraining
    source = common.examples(
        config, length,
        masked_lm_positions=lambda size: np.tile(
            np.arange(1, count + 1, dtype=np.int32), (size, 1)),
        masked_lm_ids=lambda size: np.ones([size, count], np.int32),
        masked_lm_weights=lambda size: np.ones([size, count], np.float32),
        masked_lm_mean_weight=lambda size: np.full(size, count, np.float32),
        next_sentence_labels=common.classes)
    masked_words = 6 * count * config.hidden_size * (config.hidden_size + config.vocab_size)
    return (pretraining_model.forward_of(config, next_sentences=True), source,
            _flops(config, length, count + 1) + masked_words)


def _flops(config: modeling.BertConfig, length: int, outputs: int = 1) -> float:
    return scaling.our_flops(scaling.Shape("", config.num_hidden_layers, config.hidden_size), length,
                             outputs=outputs)


def peer(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """The same fine-tuning by Hugging Face's model on PyTorch."""
    environment = _environment_of_others()
    check = [machine.huggingface_python, "-c", "import torch, transformers"]
    if subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                      env=environment).returncode:
        raise UserError(f"{machine.huggingface_python} has no torch and transformers: "
                        "--huggingface_python names another")
    return report.answer_of(
        machine.huggingface_python, "-m", "benchmarks.peers.huggingface_steps",
        f"--config={json.dumps(machine.config(cell.size).to_dict())}",
        f"--length={machine.length(cell.length)}", f"--batch_size={_batch(cell, machine)}",
        f"--precision={cell.precision}", f"--device={'cpu' if machine.toy else 'cuda'}",
        f"--num_steps={TIMED_STEPS}", env=environment)


def _environment_of_others() -> Dict[str, str]:
    """The environment without what belongs to our Python: of LD_LIBRARY_PATH, folders beside it."""
    home = os.environ.get("PYTHONHOME")  # a folder of the bundle
    own = os.path.join(os.path.dirname(home) if home else sys.prefix, "")
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
                 if path and not os.path.join(path, "").startswith(own)]
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def trace(cell: Cell, machine: Machine) -> Dict[str, Any]:
    """Where the operations of a step ran, and the time by kind; a trace for Perfetto."""
    traced = tracing.Traced()
    devices, _ = _train(cell, machine, traced)
    moved = tracing.elsewhere(traced.step_stats, devices.names)
    return {"ok": not moved, "elsewhere than on cards": moved, **tracing.summary(traced.step_stats),
            "files": {f"trace-{cell.name}.chrome.json":
                      timeline.Timeline(traced.step_stats).generate_chrome_trace_format()}}

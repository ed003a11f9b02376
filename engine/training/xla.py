"""Whether XLA compiles the layers of a training, and for which lengths of batches.

A program is for one length, takes seconds to compile when the length first comes, and saves most launches of a
layer and most of the bytes that it moves. So batches are padded to the lengths for which compiling and computing
take the least time, and --xla=auto compiles long trainings on cards. What is decided stands in run.json, and a
resumed run keeps it.
"""

import math
from typing import Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from engine import log
from engine.data.batches import Source
from engine.data.plan import TrainingPlan
from engine.devices import runtime, xla_tools
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.settings import AUTO
from engine.training import run_record
from engine.training.settings import TrainingSettings
from engine.training.throughput import flops_of_training
from modeling import BertConfig

# The lengths are chosen as for one A100 or two CPU cores, so that the same command has the same ones, and
# dropout masks, everywhere: seconds to compile for a length, whose programs all layers share, and FLOP/s.
COMPILE_SECONDS = {"GPU": 3.0, "CPU": 10.0}
FLOPS_PER_SECOND = {"GPU": 1e14, "CPU": 1e11}
MAX_LENGTHS = 8
# --xla=auto compiles no shorter training: compiling takes up to half a minute, and counted bytes and launches give a
# step of BERT-base with 32 x 128 tokens in float16 on an A100 24 ms less (docs/results.md).
LEAST_STEPS = 1000

_MAX_STEPS = 1000  # the first steps of the plan, whose batches stand for all


def bucketed(source: Source, plan: TrainingPlan, settings: TrainingSettings, devices: Devices,
             config: BertConfig, num_steps: int, output_dir: str) -> Source:
    """The source in batches of the lengths that XLA compiles; unchanged if XLA is off.

    Logs which, and why; but not that XLA is off on a CPU, where it is by default. The chief decides, and
    records it.

    Args:
        config: the encoder's.
        num_steps: those of the whole training.
        output_dir: of the training, whose record a resumed one keeps to.
    """
    if settings.xla is False or settings.xla == AUTO and devices.kind == "CPU":
        return source
    missing = _missing(devices) if settings.xla == AUTO else ""

    def decide() -> Tuple[Sequence[int], str]:
        longest, kept = int(source.padded_lengths().max()), run_record.compiled_lengths(output_dir)
        if missing:
            return [], missing
        if kept and kept[-1] == longest or kept == [] and settings.xla == AUTO:
            return kept, "as this run began"
        if settings.xla == AUTO and num_steps < LEAST_STEPS:
            return [], f"by default in fewer than {LEAST_STEPS:,} steps"
        lengths, counts = _lengths_of(source, plan, num_steps)
        return choose(lengths.tolist(), (settings.examples_per_replica * flops_of_training(
            config, lengths, settings.freeze_layers) / FLOPS_PER_SECOND[devices.kind]).tolist(),
                      counts.tolist(), COMPILE_SECONDS[devices.kind])[1], (
            "--xla" if settings.xla is True else f"by default on cards from {LEAST_STEPS:,} steps on")

    chosen, why = devices.peers.from_chief("what XLA compiles", decide)
    if devices.peers.is_chief and not missing:
        run_record.update(output_dir, compiled_lengths=list(chosen))
    if not chosen:
        log.info(f"XLA: off ({why})")
        return source
    log.info(
        f"XLA: on ({why}); it compiles the layers for each length of batches, when that first comes: "
        f"{', '.join(map(str, chosen))} tokens" + ("; and the update once" if compiles_update(devices) else ""))
    return source._replace(buckets=np.array(chosen))


def compiles_update(devices: Devices) -> bool:
    """Whether XLA compiles the update, too. On a CPU that takes half a minute and makes no step faster."""
    return devices.kind == "GPU" and runtime.COMPILES_UPDATES


def choose(lengths: Sequence[int], seconds: Sequence[float], counts: Sequence[float],
           compile_seconds: float) -> Tuple[float, Tuple[int, ...]]:
    """The least seconds of compiling and computing, and the lengths to which that pads, ascending.

    Args:
        lengths: those of the batches, ascending; the last is always chosen.
        seconds: the time to compute a batch of each length.
        counts: the number of batches of each length.
        compile_seconds: the time to compile for one length.
    """
    before = np.cumsum([0.0, *counts]).tolist()  # batches that are shorter
    # Of the first n lengths, with at most as many chosen as rounds are done.
    best = [(0.0, ()), *[(math.inf, ())] * len(lengths)]
    for _ in range(MAX_LENGTHS):
        best = [min([best[end], *(
            (cost + compile_seconds + (before[end] - before[start]) * seconds[end - 1],
             (*chosen, lengths[end - 1])) for start, (cost, chosen) in enumerate(best[:end]))])
                for end in range(len(best))]
    return best[-1]


def _lengths_of(source: Source, plan: TrainingPlan, num_steps: int) -> Tuple[np.ndarray, np.ndarray]:
    """The lengths of the plan's batches, ascending, and their counts; each text of an example counts."""
    lengths = [int(source.padded_lengths().max())]  # a later batch may have it
    sequences = [1] if source.encoded is None else [1, source.encoded.shape[1] - 1]
    steps = range(num_steps)[:_MAX_STEPS]
    for step in steps:
        lengths.extend(np.repeat(source.lengths_of_batch(plan.global_batch(step)), sequences))
    distinct, counts = np.unique(lengths, return_counts=True)
    return distinct, counts * num_steps / len(steps)


def _missing(devices: Devices) -> str:
    """What any worker lacks to compile by default; empty if nothing."""
    if not runtime.XLA_BY_DEFAULT:
        return f"by default on TensorFlow {tf.VERSION}"
    missing = ""
    try:
        xla_tools.check_here()
    except UserError as error:
        missing = str(error)
    return next(filter(None, devices.peers.gather("what XLA lacks", missing)), "")

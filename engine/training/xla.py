"""Whether XLA compiles the layers of a training, and for which lengths of batches.

A program is for one length. Compiling it takes time, and it saves most launches of a layer's operations. So
batches are padded to the lengths for which compiling and computing take the least time together, and
--xla=auto compiles if that is less than without XLA. The rates are those of an A100 and of two CPU cores,
estimated: no card has confirmed them.
"""

import collections
import math
from typing import Counter, List, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from engine import log
from engine.data.batches import Source
from engine.data.plan import TrainingPlan
from engine.devices import runtime, xla_tools
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.progress import counted
from engine.settings import AUTO
from engine.training import throughput
from engine.training.settings import TrainingSettings
from modeling import BertConfig

# For each length, whose programs all layers share; the host of a card compiles several at a time.
COMPILE_SECONDS = {"GPU": 3.0, "CPU": 10.0}
UPDATE_SECONDS = 10.0  # to compile the update
LAUNCH_SECONDS = 1e-3  # that a compiled layer saves in a micro-batch: 190 launches of 5 µs
FLOPS_PER_SECOND = {"GPU": 1e14, "CPU": 1e11}
MAX_LENGTHS = 8

_MAX_STEPS = 1000  # of the plan, whose batches stand for all


class Choice(NamedTuple):
    """Lengths of batches to compile for."""
    lengths: Tuple[int, ...]  # ascending
    seconds: float  # of compiling and computing


def bucketed(source: Source, plan: TrainingPlan, settings: TrainingSettings, devices: Devices,
             config: BertConfig, num_steps: int) -> Source:
    """The source in batches of the lengths that XLA compiles; unchanged if XLA is off.

    Logs which, and why; but not that XLA is off on a CPU, where it always is by default.

    Args:
        config: of the encoder.
        num_steps: of the whole training, so that a resumed one has the same lengths.
    """
    if settings.xla is False or settings.xla == AUTO and devices.kind == "CPU":
        return source
    lengths, counts = _lengths_of(source, plan, num_steps)
    counts = counts * settings.examples_per_replica
    seconds = throughput.flops_of_training(
        config, lengths, settings.freeze_layers) / FLOPS_PER_SECOND[devices.kind]
    choice = choose(lengths.tolist(), seconds.tolist(), counts.tolist(), COMPILE_SECONDS[devices.kind])
    why = "--xla"
    if settings.xla == AUTO:
        of_lengths = len(choice.lengths) * COMPILE_SECONDS[devices.kind]
        compiling = of_lengths + UPDATE_SECONDS
        launches = (num_steps * settings.gradient_accumulation_steps * config.num_hidden_layers
                    * LAUNCH_SECONDS)
        saved = launches + float((seconds * counts).sum()) - (choice.seconds - of_lengths)
        why = (f"compiling for {counted(len(choice.lengths), 'lengths')} of batches takes an estimated "
               f"{compiling:.0f} s, and saves {max(saved, 0):.0f} s in {counted(num_steps, 'steps')}")
        missing = _missing(devices)
        if missing or saved <= compiling:
            log.info(f"XLA: off ({missing or why})")
            return source
    log.info(
        f"XLA: on ({why}); it compiles the layers once for each length of batches, "
        f"{'before the first step' if runtime.SHARES_PROGRAMS else 'when it first comes'}, of "
        f"{', '.join(map(str, choice.lengths))} tokens"
        + (", and the update once" if compiles_update(devices) else
           f"; TensorFlow {tf.VERSION} on a {devices.kind} updates without it"))
    return source._replace(buckets=np.array(choice.lengths))


def compiles_update(devices: Devices) -> bool:
    """Whether XLA compiles the update, too. On a CPU that takes half a minute and makes no step faster."""
    return devices.kind == "GPU" and runtime.COMPILES_UPDATES


def choose(lengths: Sequence[int], seconds: Sequence[float], counts: Sequence[float],
           compile_seconds: float) -> Choice:
    """The lengths for which compiling and computing take the least time.

    Args:
        lengths: to which batches would be padded alone, ascending; the last is always chosen.
        seconds: to compute a sequence of each length.
        counts: of the sequences in batches of each length.
        compile_seconds: to compile for one length.
    """
    before = np.cumsum([0.0, *counts]).tolist()  # sequences in shorter batches
    # Of the first n lengths, with at most as many chosen as rounds are done.
    best = [Choice((), 0.0)] + [Choice((), math.inf)] * len(lengths)
    for _ in range(MAX_LENGTHS):
        best = [min([best[end], *(
            Choice((*shorter.lengths, lengths[end - 1]), shorter.seconds + compile_seconds
                   + (before[end] - before[start]) * seconds[end - 1])
            for start, shorter in enumerate(best[:end]))], key=lambda choice: choice.seconds)
            for end in range(len(best))]
    return best[-1]


def _lengths_of(source: Source, plan: TrainingPlan, num_steps: int) -> Tuple[np.ndarray, np.ndarray]:
    """The lengths of the plan's batches, ascending, and the sequences of each for one example a step."""
    longest = int(source.padded_lengths().max())
    counts: Counter[int] = collections.Counter({longest: 0})
    sequences = [1] if source.encoded is None else [1, source.encoded.shape[1] - 1]
    steps = range(num_steps)[:_MAX_STEPS]
    for step in steps:
        for length, count in zip(source.lengths_of_batch(plan.global_batch(step)), sequences):
            counts[length] += count
    lengths = np.array(sorted(counts))
    return lengths, np.array([counts[length] for length in lengths]) * num_steps / len(steps)


def _missing(devices: Devices) -> str:
    """What XLA lacks to compile by default, on any worker; empty if nothing."""
    if not runtime.SHARES_PROGRAMS:
        return f"by default on TensorFlow {tf.VERSION}"
    missing = ""
    try:
        xla_tools.check_here()
    except UserError as error:
        missing = str(error)
    everyones: List[str] = devices.peers.gather("what XLA lacks", missing)
    return next(filter(None, everyones), "")

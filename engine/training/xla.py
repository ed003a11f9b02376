"""Whether XLA compiles the layers of a training, and for which lengths of batches.

A program is for one length, takes seconds to compile when the length first comes, and saves most launches of a
layer and most of the bytes that it moves. So batches are padded to few lengths, and --xla=auto compiles long
trainings on cards. What is decided stands in run.json, and a resumed run keeps it.
"""

from typing import List

import numpy as np
import tensorflow.compat.v1 as tf

from engine import log
from engine.data.batches import Source
from engine.devices import runtime, xla_tools
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.settings import AUTO
from engine.training import run_record
from engine.training.settings import TrainingSettings

MAX_LENGTHS = 8
# --xla=auto compiles no shorter training: compiling takes up to half a minute, and counted bytes and launches give a
# step of BERT-base with 32 x 128 tokens in float16 on an A100 24 ms less (docs/results.md).
LEAST_STEPS = 1000


def bucketed(source: Source, settings: TrainingSettings, devices: Devices, num_steps: int, output_dir: str) -> Source:
    """The source in batches of the lengths that XLA compiles; unchanged if XLA is off.

    Logs which, and why; but not that XLA is off on a CPU, where it is by default. The chief records it.

    Args:
        num_steps: those of the whole training.
        output_dir: of the training, whose record a resumed one keeps to.
    """
    if settings.xla is False or settings.xla == AUTO and devices.kind == "CPU":
        return source
    missing = _missing(devices) if settings.xla == AUTO else ""
    record = run_record.load(output_dir)
    kept = devices.peers.from_chief("compiled lengths", lambda: record and record.compiled_lengths)
    chosen: List[int] = []
    if missing:
        why = missing
    elif kept and kept[-1] == source.padded_lengths().max() or kept == [] and settings.xla == AUTO:
        chosen, why = kept, "as this run began"
    elif settings.xla == AUTO and num_steps < LEAST_STEPS:
        why = f"by default in fewer than {LEAST_STEPS:,} steps"
    else:
        chosen = _lengths_of(source)
        why = "--xla" if settings.xla is True else f"by default on cards from {LEAST_STEPS:,} steps on"
    if devices.peers.is_chief and not missing:
        run_record.update(output_dir, compiled_lengths=chosen)
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


def _lengths_of(source: Source) -> List[int]:
    """The lengths at which each eighth of the tokens ends, if the texts are sorted by their length."""
    texts = source.lengths if source.encoded is None else source.encoded.ravel()
    lengths = np.sort(source._replace(lengths=texts).padded_lengths())
    ends = np.searchsorted(np.cumsum(lengths) * MAX_LENGTHS, np.arange(1, MAX_LENGTHS + 1) * lengths.sum())
    return np.unique(lengths[ends]).tolist()


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

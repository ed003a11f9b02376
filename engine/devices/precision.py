"""The precision of matrix products: its names, its type, and where it can be used."""

import os

from absl import flags

from engine import log
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError

import tensorflow.compat.v1 as tf

TF32, FLOAT32, FLOAT16, BFLOAT16 = PRECISIONS = ("tf32", "float32", "float16", "bfloat16")

# TensorFlow's own switch, which acts on some operations, without a loss scale.
_AUTO_MIXED_PRECISION = "TF_ENABLE_AUTO_MIXED_PRECISION"


def chosen_precision(values: flags.FlagValues) -> str:
    """The precision from --precision or, in trainings, its old form --fp16."""
    if "fp16" not in values or not values.fp16:
        return values.precision
    if values["precision"].present and values.precision != FLOAT16:
        raise UserError(f"--fp16 is the old name of --precision={FLOAT16}, and contradicts "
                        f"--precision={values.precision}; leave one of them out")
    return FLOAT16


def dtype_of(precision: str) -> tf.DType:
    """The type in which the encoder's matrix products are computed."""
    return {FLOAT16: tf.float16, BFLOAT16: tf.bfloat16}.get(precision, tf.float32)


def check(precision: str, devices: Devices) -> None:
    """Warns of float16 on the CPU."""
    if os.environ.get(_AUTO_MIXED_PRECISION, "").lower() not in ("", "0", "false"):
        raise UserError(f"{_AUTO_MIXED_PRECISION} makes TensorFlow change the precision of some "
                        "operations; unset it, and choose with --precision")
    if precision == BFLOAT16 and not runtime.HAS_BFLOAT16:
        raise UserError(f"--precision=bfloat16: TensorFlow {tf.VERSION} cannot multiply matrices "
                        "in bfloat16; use TensorFlow 2.15 (Python 3.9 to 3.11), or "
                        "--precision=float16 on GPUs")
    if precision == FLOAT16 and devices.kind == "CPU":
        log.warn("--precision=float16 is about a hundred times slower than float32 on the CPU; it "
                 "is for GPUs with tensor cores: leave it out")

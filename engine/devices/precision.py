"""The precision of matrix products: its names, its type, and support in hardware."""

import os
import re

from absl import flags

from engine import log
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError

import tensorflow.compat.v1 as tf

TF32, FLOAT32, FLOAT16, BFLOAT16 = PRECISIONS = ("tf32", "float32", "float16", "bfloat16")

# TensorFlow's own switch, which acts on some operations, without a loss scale.
_AUTO_MIXED_PRECISION = "TF_ENABLE_AUTO_MIXED_PRECISION"
_CPU_INFO = "/proc/cpuinfo"
_CPU_UNITS = {"amx_bf16", "avx512_bf16"}  # Linux's names, on lines "flags : fpu vme ..."


def chosen_precision(values: flags.FlagValues) -> str:
    """The precision from --precision or, in trainings, its old form --fp16.

    Raises:
        UserError: they disagree.
    """
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
    """Warns if the devices lack units for the precision, and so gain no speed.

    Raises:
        UserError: this TensorFlow cannot compute in it, or would change it.
    """
    if os.environ.get(_AUTO_MIXED_PRECISION, "").lower() not in ("", "0", "false"):
        raise UserError(f"{_AUTO_MIXED_PRECISION} makes TensorFlow change the precision of some "
                        "operations; unset it, and choose with --precision")
    if precision == BFLOAT16 and not runtime.HAS_BFLOAT16:
        raise UserError(f"--precision=bfloat16: TensorFlow {tf.VERSION} cannot multiply matrices "
                        "in bfloat16; use TensorFlow 2.15 (Python 3.9 to 3.11), or "
                        "--precision=float16 on GPUs")
    on_cpu = devices.kind == "CPU"
    if precision == FLOAT16 and on_cpu:
        remedy = ", or set --precision=bfloat16" if _cpu_has_bfloat16() else ""
        log.warn("--precision=float16 is about a hundred times slower than float32 on the CPU; it "
                 f"is for GPUs with tensor cores: leave it out{remedy}")
    elif precision == BFLOAT16 and on_cpu and not _cpu_has_bfloat16():
        log.warn("--precision=bfloat16 is not faster on this CPU: it has neither "
                 f"{' nor '.join(sorted(_CPU_UNITS))}")
    elif precision == BFLOAT16 and not on_cpu and not devices.has_ampere:
        log.warn(f"--precision=bfloat16 is not faster on {devices.describe()}: it is for Ampere "
                 "and newer GPUs")


def _cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies matrices of bfloat16, and this TensorFlow lets it."""
    try:
        with open(_CPU_INFO, encoding="utf-8") as file:
            flags_of_cpu = re.search(r"^flags\s*:(.*)$", file.read(), re.MULTILINE)
    except OSError:  # not on Linux
        return False
    return (runtime.HAS_BFLOAT16 and bool(flags_of_cpu)
            and not _CPU_UNITS.isdisjoint(flags_of_cpu.group(1).split()))

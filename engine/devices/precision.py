"""The precision of matrix products: its names, its type, and support in hardware."""

import re

from absl import flags

from engine import log
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError

import tensorflow.compat.v1 as tf

TF32, FLOAT32, FLOAT16, BFLOAT16 = PRECISIONS = ("tf32", "float32", "float16", "bfloat16")

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
        UserError: this TensorFlow cannot compute in it.
    """
    if precision == BFLOAT16:
        runtime.require_bfloat16()
    on_cpu = devices.kind == "CPU"
    if precision == FLOAT16 and on_cpu:
        log.warn("--precision=float16 is about a hundred times slower than float32 on the CPU; it "
                 "is for GPUs with tensor cores: leave it out, or set --precision=bfloat16")
    elif precision == BFLOAT16 and on_cpu and not cpu_has_bfloat16(_cpu_info()):
        log.warn("--precision=bfloat16 is not faster on this CPU: it has neither "
                 f"{' nor '.join(sorted(_CPU_UNITS))}")
    elif precision == BFLOAT16 and not on_cpu and not devices.has_ampere:
        log.warn(f"--precision=bfloat16 is not faster on {devices.describe()}: it is for Ampere "
                 "and newer GPUs")


def cpu_has_bfloat16(cpu_info: str) -> bool:
    """Whether the processor multiplies matrices of bfloat16, by the text of /proc/cpuinfo."""
    flags = re.search(r"^flags\s*:(.*)$", cpu_info, re.MULTILINE)
    return bool(flags) and not _CPU_UNITS.isdisjoint(flags.group(1).split())


def _cpu_info() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return file.read()
    except OSError:  # not on Linux
        return ""

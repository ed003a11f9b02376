"""Google's flags for TPUs: accepted, with a warning, so that its command lines still work."""

from absl import flags

from engine import log
from engine.errors import UserError

HELP_TOPIC = "For TPUs, ignored"  # of the flags defined here

_TEXTS = ("tpu_name", "tpu_zone", "gcp_project", "master")
_NUMBERS = {"iterations_per_loop": 1000, "num_tpu_cores": 8}  # with Google's defaults


def define(values: flags.FlagValues) -> None:
    """Defines the flags for TPUs."""
    flags.DEFINE_bool("use_tpu", False, "Not supported; must be false.", flag_values=values)
    for name in _TEXTS:
        flags.DEFINE_string(name, None, "TPU only; ignored.", flag_values=values)
    for name, default in _NUMBERS.items():
        flags.DEFINE_integer(name, default, "TPU only; ignored.", flag_values=values)


def check(values: flags.FlagValues) -> None:
    """Raises a UserError for --use_tpu; warns of the other TPU flags."""
    if values.use_tpu:
        raise UserError("--use_tpu=true: this program runs on GPUs and CPUs; "
                        "set --use_tpu=false, and --num_gpus for the number of cards")
    for name in (*_TEXTS, *_NUMBERS):
        if values[name].present:
            log.warn(f"--{name} is for TPUs and has no effect here")

"""The parts of CUDA with which XLA compiles for cards, and where it looks for them.

TensorFlow asks for them when it first compiles, and TensorFlow 2.15 aborts the process without ptxas.
"""

import os
import re
import shutil

from engine.devices import runtime
from engine.errors import UserError

LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")
PTXAS = os.path.join("bin", "ptxas")


def check_here() -> None:
    """Raises a UserError that names the parts which are in none of the folders."""
    # The folder that the flags of XLA name, the last if they name several; else XLA's default.
    xla_flags = os.environ.get("XLA_FLAGS", "")
    named = re.findall(r"--xla_gpu_cuda_data_dir=[\"']?([^\s\"']+)", xla_flags)
    searched = [*(named[-1:] or ["./cuda_sdk_lib"]), *runtime.CUDA_FOLDERS]
    needed = [] if os.path.exists("libdevice.10.bc") else [LIBDEVICE]
    if runtime.XLA_NEEDS_PTXAS and "ptxas_not_found" not in xla_flags and not shutil.which("ptxas"):
        needed.append(PTXAS)
    missing = [part for part in needed if not any(
        os.path.exists(os.path.join(folder, part)) for folder in searched)]
    if missing:
        raise UserError(
            f"XLA needs CUDA's {' and '.join(missing)} to compile for GPUs, which TensorFlow finds in "
            f"none of {', '.join(searched)}: {runtime.XLA_PARTS}; or name a CUDA folder that has it with "
            "XLA_FLAGS=--xla_gpu_cuda_data_dir=FOLDER in front of the command; or set --xla=false")

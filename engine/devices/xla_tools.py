"""The parts of CUDA with which XLA compiles for cards, and where it looks for them.

TensorFlow asks for them when it first compiles, and TensorFlow 2.15 aborts the process without ptxas.
"""

import os
import re
import shutil
from typing import Sequence

from engine.devices import runtime
from engine.errors import UserError

LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")
PTXAS = os.path.join("bin", "ptxas")


def check(xla_flags: str, search_path: str, folders: Sequence[str], needs_ptxas: bool) -> None:
    """Looks for the parts in the folders of CUDA.

    Args:
        xla_flags: the variable XLA_FLAGS, which may name another folder of CUDA.
        search_path: the variable PATH.
        folders: where TensorFlow looks by itself.
        needs_ptxas: False if the driver compiles in the place of a missing ptxas.
    """
    # The folder that the flags of XLA name, the last if they name several; else XLA's default.
    named = re.findall(r"--xla_gpu_cuda_data_dir=[\"']?([^\s\"']+)", xla_flags)
    searched = [*(named[-1:] or ["./cuda_sdk_lib"]), *folders]
    needed = [] if os.path.exists("libdevice.10.bc") else [LIBDEVICE]
    if needs_ptxas and "ptxas_not_found" not in xla_flags and not shutil.which("ptxas", path=search_path):
        needed.append(PTXAS)
    missing = [part for part in needed if not any(
        os.path.exists(os.path.join(folder, part)) for folder in searched)]
    if missing:
        raise UserError(
            f"XLA needs CUDA's {' and '.join(missing)} to compile for GPUs, which TensorFlow finds in "
            f"none of {', '.join(searched)}: {runtime.XLA_PARTS}; or name a CUDA folder that has it with "
            "XLA_FLAGS=--xla_gpu_cuda_data_dir=FOLDER in front of the command; or set --xla=false")


def check_here() -> None:
    """As `check`, on this machine."""
    check(os.environ.get("XLA_FLAGS", ""), os.environ.get("PATH", ""), runtime.CUDA_FOLDERS,
          runtime.XLA_NEEDS_PTXAS)

"""Runs a command of the launcher, here or over ssh, in this directory and environment.

Everybody on a machine can see command lines. So the environment goes through standard input: one
line per variable, and an empty line. The command's own input follows.
"""

import os
import re
import shlex
from typing import Dict, List, Mapping, Optional, Sequence

# ssh times out after 2 minutes: workers, with their heartbeats, notice a loss first.
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o",
        "ServerAliveCountMax=8")
_SHELL = 'cd "$1" && shift && while IFS= read -r v && [ -n "$v" ]; do export "$v"; done && exec "$@"'

# Variables that affect programs, devices, numerics and networking: patterns of names that hold no
# secrets, and TensorFlow's one by one, because others have names that begin with TF_, too.
_FORWARDED = re.compile(r"""(?x)
PATH | LD_LIBRARY_PATH | PYTHON[A-Z0-9]+ | (CUDA|CUBLAS|NCCL|OMP|KMP|GRPC)_\w+ | XLA_FLAGS |
NVIDIA_TF32_OVERRIDE | TF_(CPP_MIN_LOG_LEVEL | CPP_MAX_VLOG_LEVEL | CPP_VMODULE | XLA_FLAGS |
DETERMINISTIC_OPS | CUDNN_\w+ | ENABLE_ONEDNN_OPTS | SET_ONEDNN_FPMATH_MODE | USE_CUBLASLT |
DISABLE_CUBLAS_TENSOR_OP_MATH | FP16_MATMUL_USE_FP32_COMPUTE | MATMUL_AUTOTUNE_ENABLE |
FORCE_GPU_ALLOW_GROWTH | GPU_\w+ | FORCE_UNIFIED_MEMORY | PER_DEVICE_MEMORY_LIMIT_MB |
NUM_INTEROP_THREADS | NUM_INTRAOP_THREADS | MIN_GPU_MULTIPROCESSOR_COUNT)
""")


def variables() -> Dict[str, str]:
    """The variables to forward to other machines."""
    return {name: value for name, value in os.environ.items()
            if _FORWARDED.fullmatch(name) and "\n" not in value}


def arguments(host: Optional[str], words: Sequence[str]) -> List[str]:
    """The command line that runs a command in this directory; it reads `as_input` first.

    Args:
        host: the machine, as ssh knows it; None for this one.
    """
    line = ["sh", "-c", _SHELL, "sh", os.getcwd(), *words]
    return line if host is None else [*_SSH, "--", host, " ".join(map(shlex.quote, ["exec", *line]))]


def as_input(environment: Mapping[str, str]) -> bytes:
    """The environment as the beginning of the command's standard input."""
    return os.fsencode("".join(f"{name}={value}\n" for name, value in environment.items()) + "\n")

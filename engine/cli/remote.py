"""Runs a command of the launcher over ssh, in this directory and environment.

Everybody on a machine can see command lines. So the environment goes through standard input: one
line per variable, and an empty line. The command's own input follows.
"""

import os
import re
import shlex
from typing import Dict, List, Mapping, Sequence

from engine.errors import UserError

# ssh times out after 2 minutes: workers, with their heartbeats, notice a loss first.
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o",
        "ServerAliveCountMax=8")
_SHELL = 'cd "$1" && shift && while IFS= read -r v && [ -n "$v" ]; do export "$v"; done && exec "$@"'

# Variables that affect programs, devices, numerics and networking. Of TF_*, only TensorFlow's:
# Terraform's hold secrets.
_FORWARDED = re.compile(
    "PATH|LD_LIBRARY_PATH|XLA_FLAGS|PYTHON[A-Z0-9]+|(CUDA|CUBLAS|NVIDIA|NCCL|OMP|KMP|GRPC)_[A-Z0-9_]+|"
    "TF_(CPP|XLA|DETERMINISTIC|CUDNN|ENABLE|SET|USE|DISABLE|FP16|MATMUL|FORCE|GPU|PER|NUM|MIN)_"
    "[A-Z0-9_]+")


def variables(named: Sequence[str]) -> Dict[str, str]:
    """The variables to forward to other machines: the known ones and `named`.

    Raises:
        UserError: one of `named` is not set; a value has several lines.
    """
    for name in named:
        if name not in os.environ or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise UserError(f"--forward_env: there is no variable {name!r} in this environment")
    values = {name: value for name, value in os.environ.items()
              if name in named or _FORWARDED.fullmatch(name)}
    for name, value in values.items():
        if "\n" in value:
            raise UserError(f"the variable {name} has several lines, and only one can be "
                            "forwarded; unset it, or take it out of --forward_env")
    return values


def arguments(host: str, words: Sequence[str]) -> List[str]:
    """The ssh command line for a command in this directory; it reads `as_input` first."""
    line = ["exec", "sh", "-c", _SHELL, "sh", os.getcwd(), *words]
    return [*_SSH, "--", host, " ".join(map(shlex.quote, line))]


def as_input(environment: Mapping[str, str]) -> bytes:
    """The environment as the beginning of the command's standard input."""
    return os.fsencode("".join(f"{name}={value}\n" for name, value in environment.items()) + "\n")

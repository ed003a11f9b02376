"""Prints how many GPUs a run with these flags can use, for scripts.

    python -m engine.count_gpus [FLAG...]

If the machine has GPUs and TensorFlow sees none, prints the reason and exits with status 2,
unless a flag asks for the CPU. Ignores all other flags.
"""

import re
import sys
from typing import List

from engine.cli import command
from engine.devices import gpus, runtime
from engine.errors import UserError

_CPU = re.compile(r"--?(num_gpus|n_gpus)=0|--?num_cpu_replicas=[1-9]\d*")


def main(flags: List[str]) -> None:
    """Prints the number of GPUs; 0 if the flags ask for the CPU."""
    if any(_CPU.fullmatch(flag) for flag in flags):
        print(0)
        return
    try:
        gpus.check_seen()
    except UserError as error:
        command.exit_with(error)
    print(runtime.visible_gpu_count())


if __name__ == "__main__":
    main(sys.argv[1:])

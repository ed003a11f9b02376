"""Prints how many GPUs a run with these flags can use, for scripts.

    python -m engine.count_gpus [FLAG...]

If the machine has GPUs and TensorFlow sees none, prints the reason and exits with status 2,
unless a flag asks for the CPU. Ignores all other flags.
"""

import argparse
import sys
from typing import List

from engine.cli import command
from engine.devices import gpus, runtime
from engine.errors import UserError


def main(flags: List[str]) -> None:
    """Prints the number of GPUs; 0 if the flags ask for the CPU."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("num_gpus", "n_gpus", "num_cpu_replicas"):
        parser.add_argument(f"--{name}", f"-{name}", type=int)
    given, _ = parser.parse_known_args(flags)
    wanted = given.n_gpus if given.num_gpus is None else given.num_gpus
    if given.num_cpu_replicas or wanted == 0:
        print(0)
        return
    try:
        gpus.check_seen()
    except UserError as error:
        command.exit_with(error)
    visible = runtime.visible_gpu_count()
    print(visible if wanted is None else min(wanted, visible))


if __name__ == "__main__":
    main(sys.argv[1:])

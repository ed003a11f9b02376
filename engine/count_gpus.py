"""For scripts: prints how many GPUs a run with these flags has for its own.

    python -m engine.count_gpus [FLAG...]

Where the machine has GPUs and TensorFlow sees none, it says why and ends with status 2, unless
one of the flags asks for the CPU. All other flags are the run's affair.
"""

import re
import sys
from typing import List

from engine import cards, command, runtime
from engine.errors import UserError

_CPU = re.compile(r"--?(num_gpus|n_gpus)=0|--?num_cpu_replicas=[1-9]\d*")


def main(flags: List[str]) -> None:
    if any(_CPU.fullmatch(flag) for flag in flags):
        print(0)
        return
    try:
        cards.check_seen()
    except UserError as error:
        command.exit_with(error)
    print(runtime.visible_gpu_count())


if __name__ == "__main__":
    main(sys.argv[1:])

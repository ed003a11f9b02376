"""Prints how many replicas a run with these flags has on GPUs, for scripts.

    python -m engine.count_replicas [FLAG...]

If the machine has GPUs and TensorFlow sees none, prints the reason and exits with status 2,
unless a flag asks for the CPU. Ignores all other flags.
"""

import sys
from typing import List

from absl import flags

from engine import settings
from engine.cli import command, device_flags
from engine.devices import gpus, runtime
from engine.errors import UserError


def main(arguments: List[str]) -> None:
    """Prints the number of replicas on GPUs; 0 if the flags ask for the CPU."""
    values = flags.FlagValues()
    device_flags.define(values)
    values.set_gnu_getopt()
    try:
        values(["", *arguments], known_only=True)
        given = settings.from_flags(values, device_flags.DeviceSettings)
        wanted = given.cards
        if given.num_cpu_replicas or wanted == 0:
            print(0)
            return
        gpus.check_seen()
    except (flags.Error, UserError) as error:
        command.exit_with(error)
    visible = runtime.visible_gpu_count()
    print((visible if wanted is None else min(wanted, visible)) * given.replicas_per_gpu)


if __name__ == "__main__":
    main(sys.argv[1:])

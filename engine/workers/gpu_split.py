"""Splits a machine's cards among the processes that share them.

Needs no TensorFlow, and decides before TensorFlow opens the cards.
"""

import subprocess
from typing import List, MutableMapping

from engine.errors import UserError

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def take(environment: MutableMapping[str, str], index: int, processes: int) -> None:
    """Limits CUDA_VISIBLE_DEVICES to this process's share of the machine's cards.

    Changes nothing for a single process, or on a machine without cards.

    Args:
        environment: the environment of the process that will open the cards.
        index: the number of this process on its machine, from 0.
        processes: the number of processes that share the visible cards.

    Raises:
        UserError: the cards cannot be split evenly. All replicas have the same batch size, and
            all processes the same number of replicas.
    """
    visible = _visible(environment)
    if processes == 1 or not visible:
        return
    if len(visible) % processes:
        raise UserError(f"{len(visible)} cards ({','.join(visible)}) cannot be shared out evenly "
                        f"among {processes} processes; show a multiple of {processes} with "
                        f"{_VARIABLE}, or start fewer processes on each machine")
    share = len(visible) // processes
    environment[_VARIABLE] = ",".join(visible[index * share:(index + 1) * share])


def _visible(environment: MutableMapping[str, str]) -> List[str]:
    """The names of the visible cards; empty if the user wants none or the machine has none."""
    value = environment.get(_VARIABLE)
    if value is None:
        return [str(number) for number in range(_cards_of_the_machine())]
    names = [name.strip() for name in value.split(",") if name.strip()]
    return [] if names and names[0].startswith("-") else names


def _cards_of_the_machine() -> int:
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())

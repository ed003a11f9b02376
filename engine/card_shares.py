"""Which of a machine's cards a process takes where several processes share them.

Needs no TensorFlow, and decides before TensorFlow opens the cards.
"""

import subprocess
from typing import List, MutableMapping

from engine.errors import UserError

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def take(environment: MutableMapping[str, str], index: int, processes: int) -> None:
    """Leaves in CUDA_VISIBLE_DEVICES the share of one of a machine's processes.

    Nothing changes for a process that is alone, and where there are no cards.

    Args:
        environment: of the process that will open the cards.
        index: of this process among those of its machine, from 0.
        processes: how many share the machine's visible cards.

    Raises:
        UserError: the cards cannot be shared out evenly. All replicas of a run compute batches
            of one size, and every process has as many as the others.
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
    """The names of the visible cards; empty where none is wanted or the machine has none."""
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

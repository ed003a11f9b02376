"""The processes of a run, from SLURM's variables in the environment of a job step.

`srun` starts them. A process outside of a step, such as the batch script's own, is alone.
"""

import itertools
import re
from typing import List, Mapping, NamedTuple, Optional

from engine.errors import UserError

NODES = "SLURM_STEP_NODELIST"

# Above the ports of common services, and below Linux's ephemeral ports (from 32768).
_FIRST_PORT, _JOBS, _PORTS_OF_A_JOB = 16384, 256, 64

# With one of these, srun shares out a machine's cards among the processes.
_BINDINGS = ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND")

_MOST_PROCESSES = 4096

_RANGE = r"\d{1,9}(?:-\d{1,9})?"
_BRACKETS = rf"\[{_RANGE}(?:,{_RANGE})*\]"
_NAME = rf"(?:[^\[\],\s]|{_BRACKETS})+"


class Step(NamedTuple):
    """The processes of a job's step, and the numbers of this one."""
    addresses: List[str]  # HOST:PORT of each process, by number
    index: int  # this process's number
    local_index: int  # this process's number on its machine
    local_processes: int  # on this machine
    shares_cards: bool  # whether all processes of a machine see the same cards


def current_step(environment: Mapping[str, str]) -> Optional[Step]:
    """The step that this process belongs to; None if it is the only one, or not under SLURM.

    Raises:
        UserError: the variables are incomplete or contradict each other.
    """
    nodes, index = environment.get(NODES), environment.get("SLURM_PROCID")
    # The first counts the step's processes. Without it the second does; in an interactive step the
    # second counts the processes that the job may have.
    count = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "1")
    if not nodes or index is None or count == "1":
        return None
    try:
        return _step(environment, expand_hosts(nodes), int(index), int(count))
    except (ValueError, IndexError) as error:
        raise UserError(
            f"SLURM's variables do not fit together: {NODES}={nodes[:60]!r}, SLURM_PROCID={index!r}, "
            f"{count!r} processes ({error}); set TF_CONFIG instead") from error


def expand_hosts(text: str) -> List[str]:
    """The names in SLURM's short form: 'n[01-03,07],x5' is n01, n02, n03, n07, x5.

    Raises:
        ValueError: the text is not of that form.
    """
    if not re.fullmatch(f"{_NAME}(?:,{_NAME})*", text):
        raise ValueError(f"{text[:60]!r} is not a list of hosts such as n[01-03,07],x5")
    hosts: List[str] = []
    for name in re.findall(_NAME, text):
        parts = re.findall(rf"{_BRACKETS}|[^\[\]]+", name)
        names = map("".join, itertools.product(*map(_alternatives, parts)))
        hosts += itertools.islice(names, _MOST_PROCESSES + 1)
        _check_number(len(hosts))
    return hosts


def expand_counts(text: str) -> List[int]:
    """The numbers in SLURM's short form: '2(x3),1' is 2, 2, 2, 1.

    Raises:
        ValueError: the text is not of that form.
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            raise ValueError(f"{text[:60]!r} is not a list of numbers such as 2(x3),1")
        _check_number(len(counts) + int(match.group(2) or 1))
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def _alternatives(part: str) -> List[str]:
    """Expands a part of a name: '[01-03]' is 01, 02, 03; other text is itself."""
    if not part.startswith("["):
        return [part]
    numbers = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", part):
        size = int(last or first) - int(first) + 1
        if size < 1:
            raise ValueError(f"{first}-{last} is no range")
        _check_number(len(numbers) + size)
        numbers += [str(int(first) + number).zfill(len(first)) for number in range(size)]
    return numbers


def _check_number(count: int) -> None:
    if count > _MOST_PROCESSES:
        raise ValueError(f"more than {_MOST_PROCESSES} processes")


def _step(environment: Mapping[str, str], hosts: List[str], index: int, count: int) -> Step:
    _check_number(count)
    counts = expand_counts(environment.get("SLURM_STEP_TASKS_PER_NODE")
                           or f"{count // len(hosts)}(x{len(hosts)})")
    if len(counts) != len(hosts) or sum(counts) != count:
        raise ValueError(f"on {len(hosts)} machines there are {str(counts)[:60]}")
    if len(set(hosts)) < len(hosts) or index < 0:
        raise ValueError("a machine is named twice, or the number is less than 0")
    places = [(machine, local) for machine, number in enumerate(counts) for local in range(number)]
    machine, local = places[index]
    if environment.get("SLURM_LOCALID", str(local)) != str(local):
        raise ValueError("they are not numbered machine by machine, as with srun "
                         "--distribution=block")
    port = _first_port(environment)
    return Step([f"{hosts[other]}:{port + number}" for other, number in places], index, local,
                counts[machine], not any(name in environment for name in _BINDINGS))


def _first_port(environment: Mapping[str, str]) -> int:
    """A port that other jobs and steps on the machine are unlikely to use."""
    job, step = (int(environment.get(name, 0)) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return _FIRST_PORT + (job + 31 * step) % _JOBS * _PORTS_OF_A_JOB

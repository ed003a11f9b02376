"""The processes of a run, from SLURM's variables in the environment of a job step.

`srun` starts them. A process outside of a step, such as the batch script's own, is alone.
"""

import itertools
import re
from typing import Iterator, List, Mapping, NamedTuple, Optional

from engine.errors import UserError

NODES = "SLURM_STEP_NODELIST"

# Above the ports of common services, and below Linux's ephemeral ports (from 32768).
_FIRST_PORT, _JOBS, _PORTS_OF_A_JOB = 16384, 256, 64

# With one of these, srun shares out a machine's cards among the processes.
_BINDINGS = ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND")


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
    """The names in SLURM's short form: 'n[01-03,07],x5' is n01, n02, n03, n07, x5."""
    hosts: List[str] = []
    for name in re.findall(r"(?:[^\[,]|\[[^\]]*\])+", text):
        parts = re.split(r"\[(.*?)\]", name)  # text and ranges by turns
        hosts += map("".join, itertools.product(*(
            _numbers(part) if place % 2 else [part] for place, part in enumerate(parts))))
    return hosts


def _numbers(ranges: str) -> Iterator[str]:
    """Expands ranges: '01-03,07' is 01, 02, 03, 07."""
    for numbers in ranges.split(","):
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def expand_counts(text: str) -> List[int]:
    """The numbers in SLURM's short form: '2(x3),1' is 2, 2, 2, 1."""
    counts: List[int] = []
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        counts += [int(count)] * int(times or 1)
    return counts


def _step(environment: Mapping[str, str], hosts: List[str], index: int, count: int) -> Step:
    counts = expand_counts(environment.get("SLURM_STEP_TASKS_PER_NODE")
                           or f"{count // len(hosts)}(x{len(hosts)})")
    if len(counts) != len(hosts) or sum(counts) != count:
        raise ValueError(f"on {len(hosts)} machines there are {str(counts)[:60]}")
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

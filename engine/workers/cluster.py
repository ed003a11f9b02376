"""The cluster of a run, read from the variable TF_CONFIG or from SLURM's.

A run has one worker on each machine, or several: a worker is a process with some of the replicas.
The first one is the chief, which alone writes the results.
"""

import collections
import json
import os
import re
import sys
from typing import Any, Mapping, MutableMapping, NamedTuple, Optional, Tuple

from engine import log
from engine.disk import files
from engine.errors import UserError
from engine.workers import gpu_split, slurm

# The exit status of a worker that has lost another one, or cannot reach it: a supervisor should
# restart it. It is no signal's number + 128, and Kubernetes' operators retry every status from 128
# on.
PEER_LOST_STATUS = 193

_VARIABLE = "TF_CONFIG"
_SECRET_VARIABLE = "CLUSTER_SECRET"
_SHORTEST_SECRET, _LONGEST_SECRET = 16, 4096
_JOBS = ("chief", "master", "worker")  # in the order of their workers; "master" is an old name


class PeerLost(Exception):
    """Another worker is lost, cannot be reached, or has exited; the message is one line.

    A command prints the line and exits with `status`.
    """

    def __init__(self, said: str, status: int = PEER_LOST_STATUS):
        super().__init__(said)
        self.status = status


class Cluster(NamedTuple):
    """The workers of a run, and the number of this process among them."""
    addresses: Tuple[str, ...]  # "host:port" of each worker; that of the chief first
    index: int
    secret: str = ""  # of the run; empty if it has none

    def __repr__(self) -> str:
        return f"Cluster({self.addresses}, {self.index})"

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints and results."""
        return self.index == 0

    def name(self, index: int) -> str:
        """Describes a worker: 'worker 1 (host:port)'."""
        return f"worker {index} ({self.addresses[index]})"


ALONE = Cluster(("localhost:0",), 0)


def from_environment(environment: MutableMapping[str, str] = os.environ,
                     secret_file: Optional[str] = None) -> Cluster:
    """The cluster that the environment describes; ALONE if it has one worker or none.

    Removes TF_CONFIG from the environment: Estimator would read it, too, and run the training in
    its own way, which neither restores nor waits on every worker. Removes the run's secret, too,
    which is for this process alone. Under SLURM, processes on a machine share its cards.

    Args:
        secret_file: --cluster_secret_file, instead of the environment's secret.

    Raises:
        UserError: TF_CONFIG is malformed, or SLURM's variables contradict each other.
    """
    secret, text = environment.pop(_SECRET_VARIABLE, ""), environment.pop(_VARIABLE, None)
    if secret_file:
        secret = _read_secret(secret_file)
    cluster = _of_slurm(environment) if text is None else _of_tf_config(environment, text)
    return cluster if cluster == ALONE else cluster._replace(secret=secret)


def _read_secret(path: str) -> str:
    content = files.read_whole(path, "--cluster_secret_file", _LONGEST_SECRET)
    secret = content.decode("latin-1").strip()  # of any bytes
    if len(secret) < _SHORTEST_SECRET:
        raise UserError(f"--cluster_secret_file {path} has fewer than {_SHORTEST_SECRET} characters; "
                        "write a random text into it, such as `openssl rand -hex 32` prints")
    return secret


def _of_tf_config(environment: MutableMapping[str, str], text: str) -> Cluster:
    environment.pop(slurm.NODES, None)
    try:
        return _parsed(json.loads(text or "{}"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{_VARIABLE} in the environment is not the JSON of a cluster "
                        f"({error or type(error).__name__}): {str(text)[:60]!r}; unset it to train "
                        "on this machine") from error


def run_on_chief(cluster: Cluster) -> None:
    """Exits on every worker but the chief, for work that is not divided."""
    if not cluster.is_chief:
        sys.stderr.write(f"This runs on {cluster.name(0)} alone: only trainings are divided among "
                         f"machines. {cluster.name(cluster.index)} has nothing to do\n")
        sys.exit(0)


def _of_slurm(environment: MutableMapping[str, str]) -> Cluster:
    step = slurm.current_step(environment)
    if step is None:
        return ALONE
    if step.shares_cards:
        gpu_split.take(environment, step.local_index, step.local_processes)
    environment.pop(slurm.NODES)  # like TF_CONFIG: the cards are split once
    return Cluster(tuple(step.addresses), step.index)


def _parsed(config: Mapping[str, Any]) -> Cluster:
    jobs = {name: [hosts] if isinstance(hosts, str) else list(hosts)
            for name, hosts in dict(config.get("cluster") or {}).items()}
    others = sorted(name for name in jobs if jobs[name] and name not in (*_JOBS, "evaluator"))
    if others:
        raise UserError(f"{_VARIABLE} in the environment has the job {others[0]!r}; the workers of "
                        "a run are of the jobs 'worker' and, if there is one, 'chief'")
    addresses = tuple(address for name in _JOBS for address in jobs.get(name, ()))
    _check_addresses(addresses)
    task = dict(config.get("task") or {})
    if len(addresses) > 1:
        return Cluster(addresses, _index(jobs, task))
    if addresses and task or task.get("type") == "evaluator":
        _index(jobs, task)  # an evaluator beside a chief would train into the same folder
    return ALONE


def _index(jobs: Mapping[str, Any], task: Mapping[str, Any]) -> int:
    kind, index = task["type"], str(task["index"])
    if kind not in _JOBS or not re.fullmatch("[0-9]{1,9}", index) or (
            int(index) >= len(jobs.get(kind, ()))):
        process = log.visible(f"{kind} {index}")[:60]
        raise UserError(f"{_VARIABLE} in the environment says that this process is {process}, "
                        "which its cluster does not have")
    return sum(len(jobs.get(name, ())) for name in _JOBS[:_JOBS.index(kind)]) + int(index)


def _check_addresses(addresses: Tuple[str, ...]) -> None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not re.fullmatch(r"[\w.\[\]:%-]{1,255}", host) or not port.isdigit() or not (
                0 < int(port) < 2**16):
            raise UserError(f"{_VARIABLE} in the environment: {address[:300]!r} is no HOST:PORT")
    for address, count in collections.Counter(map(str.lower, addresses)).most_common(1):
        if count > 1:
            raise UserError(f"{_VARIABLE} in the environment names {address} {count} times; each "
                            "worker has an address of its own")

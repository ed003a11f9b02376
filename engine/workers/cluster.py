"""The cluster of a run, read from the variable TF_CONFIG.

A run has one worker on each machine, or several: a worker is a process with some of the replicas.
The first one is the chief, which alone writes the results.
"""

import json
import os
import re
import sys
from typing import Any, List, Mapping, MutableMapping, NamedTuple, Tuple

from engine import log
from engine.errors import UserError

# The exit status of a worker that has lost another one, or cannot reach it: a supervisor should
# restart it. It is no signal's number + 128, and Kubernetes' operators retry every status from 128
# on.
PEER_LOST_STATUS = 193

_VARIABLE = "TF_CONFIG"
_JOBS = ("chief", "master", "worker")  # in the order of their workers; "master" is an old name


class PeerLost(Exception):
    """Another worker is lost or cannot be reached; the message is one line."""


class Cluster(NamedTuple):
    """The workers of a run, and the number of this process among them."""
    addresses: Tuple[str, ...]  # "host:port" of each worker; that of the chief first
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints and results."""
        return self.index == 0

    @property
    def others(self) -> List[int]:
        """The numbers of the other workers."""
        return [index for index in range(len(self.addresses)) if index != self.index]

    def name(self, index: int) -> str:
        """Describes a worker: 'worker 1 (host:port)'."""
        return f"worker {index} ({self.addresses[index]})"


ALONE = Cluster(("localhost:0",), 0)


def from_environment(environment: MutableMapping[str, str] = os.environ) -> Cluster:
    """The cluster that the environment describes; ALONE if it has one worker or none.

    Removes TF_CONFIG from the environment: Estimator would read it, too, and run the training in
    its own way, which neither restores nor waits on every worker.
    """
    text = environment.pop(_VARIABLE, "")
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


def _parsed(config: Mapping[str, Any]) -> Cluster:
    jobs, task = dict(config.get("cluster") or {}), dict(config.get("task") or {})
    names = [f"{job} {index}" for job in _JOBS for index in range(len(jobs.get(job, ())))]
    addresses = tuple(address for job in _JOBS for address in jobs.get(job, ()))
    _check_addresses(addresses)
    if not addresses or len(addresses) == 1 and not task:
        return ALONE
    own = f"{task['type']} {task['index']}"
    if own not in names:  # an evaluator beside a chief would train into the same folder
        raise UserError(f"{_VARIABLE} in the environment says that this process is "
                        f"{log.brief(own)}, which its cluster does not have")
    return Cluster(addresses, names.index(own)) if len(addresses) > 1 else ALONE


def _check_addresses(addresses: Tuple[str, ...]) -> None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not re.fullmatch(r"[\w.\[\]:%-]{1,255}", host) or not port.isdigit() or not (
                0 < int(port) < 2**16):
            raise UserError(f"{_VARIABLE} in the environment: {address[:300]!r} is no HOST:PORT")
        if list(map(str.lower, addresses)).count(address.lower()) > 1:
            raise UserError(f"{_VARIABLE} in the environment names {address} more than once; each "
                            "worker has an address of its own")

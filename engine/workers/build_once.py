"""Detects shared disks; on each of them, one worker builds the data that all its workers read.

Each worker creates a file and checks which others it can see.
"""

import contextlib
import os
import uuid
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from engine.workers.coordination import NO_PEERS, Peers

# By directory: the workers that share it, the builder first. Of the process, as the disk is of the
# machine: what is built is opened by its path alone, by code that knows nothing of workers.
_sharers: Dict[str, Tuple[Peers, List[int]]] = {}


def find_builder(directory: str, us: Peers) -> None:
    """Finds out which worker builds in a directory: the first one of those that share it.

    Called by all workers.
    """
    if not us.others:
        return
    with token(directory) as own:
        tokens = us.gather("token", own)
        sharers = [index for index, name in enumerate(tokens)
                   if os.path.exists(os.path.join(directory, name))]
        us.wait("tokens seen")
    _sharers[os.path.abspath(directory)] = us, sharers


def build_once(path: str, facts: Mapping[str, Any], build: Callable[[], None]) -> None:
    """Calls `build`, which makes `path` unless it is there; another worker's build is waited for.

    Called by all workers, if `find_builder` was called for the directory. A UserError ends those
    whose facts about it differ.
    """
    us, (builder, *others) = _sharers.get(os.path.dirname(os.path.abspath(path)), (NO_PEERS, [0]))
    us.compare("the data", {"data": facts})
    own, key = us.cluster.index, f"built {os.path.basename(path)}"
    if own != builder:
        us.hear(builder, key)
    build()
    if own == builder:
        for index in others:
            us.say(key, None, to=index)


@contextlib.contextmanager
def token(directory: str) -> Iterator[str]:
    """Yields the unique name of a temporary file in a directory."""
    name = f".worker-{uuid.uuid4().hex}"
    path = os.path.join(directory, name)
    with open(path, "x"):
        pass
    try:
        yield name
    finally:
        os.remove(path)

"""Detects shared disks; on each of them, one worker builds the data that all its workers read.

Each worker creates a file and checks which others it can see.
"""

import contextlib
import os
import uuid
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

from engine.workers.coordination import NO_PEERS, Peers

# Directory → the builder there. Global, because the code that opens a store has only its path and
# knows nothing of workers.
_builders: Dict[str, Tuple[Peers, int]] = {}


def find_builder(directory: str, us: Peers) -> None:
    """Finds out which worker builds in a directory: the first one of those that share it.

    Called by all workers.
    """
    if not us.others:
        return
    with token(directory) as own:
        tokens = us.gather("token", own)
        seen = [os.path.exists(os.path.join(directory, name)) for name in tokens]
        us.wait("tokens seen")
    _builders[os.path.abspath(directory)] = us, seen.index(True)


def build_once(path: str, facts: Mapping[str, Any], build: Callable[[], None]) -> None:
    """Calls `build`, which creates `path` if missing: first on the builder, then on the others.

    Called by all workers, if `find_builder` was called for the directory.
    """
    us, builder = _builders.get(os.path.dirname(os.path.abspath(path)), (NO_PEERS, 0))
    us.compare("the data", {"data": facts})
    is_builder = us.cluster.index == builder
    if is_builder:
        build()
    us.wait(f"built {os.path.basename(path)}")
    if not is_builder:
        build()


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

"""Which workers of a run share a disk, and who builds on it what all of them read.

It is found out: each worker puts a file there, and looks for those of the others.
"""

import contextlib
import os
import uuid
from typing import Callable, Dict, Iterator, List

from engine import peers

_sharers: Dict[str, List[int]] = {}  # by directory: the workers that share it, the builder first


def find_builder(directory: str) -> None:
    """Finds out which worker builds in a directory: the first one of those that share it.

    Called by all workers.
    """
    us = peers.current()
    if not us.others:
        return
    with token(directory) as own:
        tokens = us.gather("token", own)
        sharers = [index for index, name in enumerate(tokens)
                   if os.path.exists(os.path.join(directory, name))]
        us.wait("tokens seen")
    _sharers[os.path.abspath(directory)] = sharers


def build_once(path: str, build: Callable[[], None]) -> None:
    """Calls `build`, which makes `path` unless it is there; another worker's build is waited for.

    Called by all workers with the same name, if `find_builder` was called for the directory.
    """
    us = peers.current()
    own = us.cluster.index
    builder, *others = _sharers.get(os.path.dirname(os.path.abspath(path)), [own])
    key = f"built {os.path.basename(path)}"
    if own != builder:
        us.hear(builder, key)
    build()
    if own == builder:
        for index in others:
            us.say(key, None, to=index)


@contextlib.contextmanager
def token(directory: str) -> Iterator[str]:
    """A file in a directory, for a while; its name is new."""
    name = f".worker-{uuid.uuid4().hex}"
    path = os.path.join(directory, name)
    with open(path, "x"):
        pass
    try:
        yield name
    finally:
        os.remove(path)

"""Faults of the disk: the library of faulty_disk.c, and what its log tells of a power cut."""

import os
import re
import shutil
import subprocess
from typing import Iterable, List, NamedTuple, Optional

from engine.disk import scratch

# Names of what nobody needs when a command has ended.
TEMPORARY = re.compile(re.escape(scratch.PREFIX))
# Of what is not put in place: these, and what is written as it grows.
_NOT_PUT = re.compile(TEMPORARY.pattern + r"|tfevents|\.part$|\.lock$")


class Operation(NamedTuple):
    """A line of the log."""
    kind: str  # open, create, write, sync, rename or remove
    path: str
    other: str  # the new path of a rename


def library(folder: str) -> Optional[str]:
    """The path of the compiled library; none where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    path = os.path.join(folder, "faulty_disk.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path,
                    f"{os.path.splitext(__file__)[0]}.c", "-ldl"], check=True)
    return path


def read_log(path: str) -> List[Operation]:
    """The operations on a disk, in their order."""
    with open(path) as file:
        return [Operation(*line.rstrip("\n").split("\t")) for line in file]


def lost_by_a_power_cut(operations: Iterable[Operation]) -> List[str]:
    """What a power cut at the worst moment could lose of files that are in place.

    A file must be synced before it, or one beside it, gets its name; the name must be synced
    before the process ends.
    """
    unsynced, unsynced_names, lost = set(), set(), []
    for operation, path, other in operations:
        if operation == "write":
            unsynced.add(path)
        elif operation == "sync":
            unsynced.discard(path)
            unsynced_names.discard(path)
        elif operation == "remove":
            unsynced.discard(path)
        elif operation == "rename":
            inside = {name for name in unsynced if name == path or name.startswith(f"{path}/")}
            unsynced = unsynced - inside | {other + name[len(path):] for name in inside}
            if not _NOT_PUT.search(other):
                unsynced_names.add(os.path.dirname(other))
                lost += [f"{name}, when {other} was named" for name in unsynced
                         if not _NOT_PUT.search(name)
                         and os.path.dirname(name).startswith(os.path.dirname(other))]
    return lost + [f"the names in {name}" for name in unsynced_names]

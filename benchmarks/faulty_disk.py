"""Faults of the disk: the library of faulty_disk.c and its log."""

import os
import re
import shutil
import subprocess
from typing import List, NamedTuple, Optional

from engine.disk import scratch

# Names of what nobody needs when a command has ended.
TEMPORARY = re.compile(re.escape(scratch.PREFIX))


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

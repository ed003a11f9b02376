"""Faults of the disk: the library of faulty_disk.c and its log."""

import os
import shutil
import subprocess
from typing import List, Optional, Sequence


def library(folder: str) -> Optional[str]:
    """The path of the compiled library; none where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    path = os.path.join(folder, "faulty_disk.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path,
                    f"{os.path.splitext(__file__)[0]}.c", "-ldl"], check=True)
    return path


def read_log(path: str) -> List[Sequence[str]]:
    """The operations on a disk, in their order: each with its kind, its path and that of a rename.

    Kinds: open, create, write, sync, rename and remove.
    """
    with open(path) as file:
        return [line.rstrip("\n").split("\t") for line in file]

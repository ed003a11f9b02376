"""The files that a flag names by paths, patterns and directories."""

import glob
import os
from typing import Dict, List

from engine import log
from engine.disk.files import HALF_CHARACTER
from engine.errors import UserError


def find(patterns: str, flag: str) -> List[str]:
    """The files that comma-separated paths, patterns and directories match, each once."""
    matches: Dict[str, str] = {}  # path without links to folders → path as given
    repeated: List[str] = []
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        # The name of an existing file may hold characters that are special in a pattern.
        paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        names = [name for path in paths for name in _files_at(path, repeated)]
        if not names:
            raise UserError(f"{flag}: {pattern} is no file, no directory with files and no "
                            "pattern that matches one")
        for name in filter(HALF_CHARACTER.search, names):
            raise UserError(f"{flag}: {name} is not UTF-8: rename it")
        repeated += [name for name in names if name != matches.setdefault(os.path.join(
            os.path.realpath(os.path.dirname(name)), os.path.basename(name)), name)]
    if not matches:
        raise UserError(f"{flag} names no file")
    if repeated:
        log.warn(f"{flag}: {len(repeated):,} paths or links lead to files or folders that are read "
                 f"already, and are left out; the first: {repeated[0]}")
    return list(matches.values())


def _files_at(path: str, repeated: List[str]) -> List[str]:
    """The file itself, or all files below a directory in sorted order, without hidden ones.

    Adds to `repeated` the links to folders that are read already, such as one that leads back.
    """
    if not os.path.isdir(path):
        return [path]
    paths, read = [], set()
    for folder, folders, names in os.walk(path, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in read:
            repeated.append(folder)
            folders.clear()
            continue
        read.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(folder, name)), name))
        paths += [os.path.join(folder, name) for name in names if not name.startswith(".")]
    return sorted(filter(os.path.isfile, paths))

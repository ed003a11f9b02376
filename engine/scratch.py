"""Folders for what a command writes on its way and nobody needs after it."""

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from typing import IO, Iterator

_LOCK = "lock"


@contextlib.contextmanager
def folder(directory: str, name: str) -> Iterator[str]:
    """Yields an empty folder, .NAME-*, in a directory; removed at the end.

    Those that killed processes have left there are removed, too. A process locks its folder's file
    while it lives, so that one that is in use, by whatever machine, is left alone.
    """
    for leftover in glob.glob(os.path.join(glob.escape(directory), f".{name}-*", _LOCK)):
        _remove_if_unused(leftover)
    with tempfile.TemporaryDirectory(dir=directory, prefix=f".{name}-") as path:
        with open(os.path.join(path, _LOCK), "w") as lock:
            _is_free(lock)
            yield path


def _remove_if_unused(path: str) -> None:
    with contextlib.suppress(OSError), open(path) as lock:
        if _is_free(lock):
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def _is_free(lock: IO[str]) -> bool:
    """Locks a file; whether that was possible. Not on file systems without locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

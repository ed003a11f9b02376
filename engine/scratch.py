"""Folders for what a command writes on its way and nobody needs after it."""

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from typing import Iterator


@contextlib.contextmanager
def folder(directory: str, name: str) -> Iterator[str]:
    """Yields an empty folder, .NAME-*, in a directory; removed at the end.

    Those that killed processes have left there are removed, too. A process locks its folder while
    it lives, so that one that is in use is left alone; so is any on a disk that cannot lock folders.
    """
    for leftover in glob.glob(os.path.join(glob.escape(directory), f".{name}-*")):
        with _locked(leftover) as is_unused:
            if is_unused:
                shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=f".{name}-") as path, _locked(path):
        yield path


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Locks a folder until the end, or until the process ends; yields whether that was possible."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # it is gone, or belongs to another user
        yield False
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

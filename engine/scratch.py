"""Temporary working folders, which are removed even if the process that made them was killed."""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import uuid
from typing import Iterator


@contextlib.contextmanager
def folder(directory: str, name: str) -> Iterator[str]:
    """Yields an empty folder, .NAME-HOST-*, in a directory; removed at the end.

    Those that killed processes of this host have left there are removed, too. A process locks its
    folder while it lives, so that one in use is left alone; so is any on a disk without locks.
    """
    prefix = f".{name}-{re.sub('[^A-Za-z0-9]', '', socket.gethostname())}-"
    for leftover in os.listdir(directory):
        if re.fullmatch(re.escape(prefix) + "[0-9a-f]{8}", leftover):
            _remove_if_unused(os.path.join(directory, leftover))
    own = f"{prefix}{uuid.uuid4().hex[:8]}"
    draft, path = os.path.join(directory, f".new{own}"), os.path.join(directory, own)
    try:
        os.mkdir(draft)
        with _locked(draft):
            os.rename(draft, path)  # it is locked before others can take it for a leftover
            yield path
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)


def _remove_if_unused(path: str) -> None:
    with _locked(path) as is_unused:
        if is_unused:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Locks a folder until the end, or until the process ends; yields whether that was possible."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it is gone, or not a folder of this user
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

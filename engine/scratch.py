"""Temporary folders: whatever is written is written in one, and moved out when it is complete.

Their names are random and only their owner may enter them, so that nobody can put a link where a file
will be opened. A process locks its folders while it lives: those of killed ones are removed.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import stat
from typing import Iterator

PREFIX = ".bert-tmp-"  # of their names; the host's name and random digits follow
_REPLACED, _LOCK = f"{PREFIX}replaced", f"{PREFIX}lock"


@contextlib.contextmanager
def folder(directory: str) -> Iterator[str]:
    """Yields a new folder in a directory; removed at the end.

    Those that killed processes of this host have left there are removed, too. One in use is
    locked and left alone; so is any on a disk without locks.
    """
    prefix = f"{PREFIX}{re.sub('[^A-Za-z0-9]', '', socket.gethostname())}-"
    for leftover in os.listdir(directory):
        if re.fullmatch(re.escape(prefix) + "[0-9a-f]{16}", leftover):
            _remove_if_unused(os.path.join(directory, leftover))
    path = os.path.join(directory, f"{prefix}{secrets.token_hex(8)}")
    draft = f"{path}.new"
    try:
        os.mkdir(draft, 0o700)
        with _locked(draft):
            os.rename(draft, path)  # it is locked before others can take it for a leftover
            yield path
    finally:
        _remove(path)
        _remove(draft)


def move_into(path: str, own: str) -> None:
    """Moves a folder, which is to be replaced, from beside a temporary folder into it.

    If nothing has taken its place when the temporary folder is removed, it is moved back.
    """
    os.mkdir(os.path.join(own, _REPLACED))
    os.rename(path, os.path.join(own, _REPLACED, os.path.basename(path)))


def _remove_if_unused(path: str) -> None:
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return
        with _locked(path) as is_unused:
            pass  # no name is used twice; and NFS removes no folder with an open file
    except OSError:  # it is gone
        return
    if is_unused:
        _remove(path)


def _remove(path: str) -> None:
    replaced = os.path.join(path, _REPLACED)
    # A fault of the disk, other than that there is no such folder, must not look like one.
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(replaced) if stat.S_ISDIR(os.lstat(replaced).st_mode) else []:
            original = os.path.join(os.path.dirname(path), name)
            if not os.path.lexists(original):
                os.rename(os.path.join(replaced, name), original)
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Locks a folder until the end, or until the process ends; yields whether that was possible."""
    # By a file in it: NFS locks no folders.
    descriptor = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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

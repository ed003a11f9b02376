"""Temporary folders: all output is written in one, and moved out when complete.

Their names are random and only their owner may enter them, so that nobody can plant a link where a
file will be opened. A process locks its folders while it lives; unlocked leftovers are removed.
"""

import contextlib
import functools
import os
import re
import secrets
import shutil
import socket
import stat
from typing import Iterator

from engine.disk import locks

PREFIX = ".bert-tmp-"  # the host's name and random digits follow
_LOCK = f"{PREFIX}lock"


@contextlib.contextmanager
def folder(directory: str) -> Iterator[str]:
    """Yields a new folder in a directory; removes it at the end.

    For the first one in a directory, the process also removes leftovers of killed processes of this
    host. Keeps folders in use, which are locked, and all folders on a disk without locks.
    """
    _remove_leftovers(os.path.realpath(directory))
    path = os.path.join(directory, f"{_prefix()}{secrets.token_hex(8)}")
    draft = f"{path}.{os.getpid()}"
    try:
        os.mkdir(draft, 0o700)
        with locks.locked(os.path.join(draft, _LOCK)):  # NFS locks no folders
            os.rename(draft, path)  # after locking, so that nobody takes it for a leftover
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(draft, ignore_errors=True)


def _prefix() -> str:
    return f"{PREFIX}{re.sub('[^A-Za-z0-9]', '', socket.gethostname())}-"


@functools.lru_cache(maxsize=None)  # each small write would list a large directory again
def _remove_leftovers(directory: str) -> None:
    for name in os.listdir(directory):
        match = re.fullmatch(re.escape(_prefix()) + r"[0-9a-f]{16}(?:\.(\d+))?", name)
        if match and not (match.group(1) and _is_alive(int(match.group(1)))):
            _remove_if_unused(os.path.join(directory, name))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def _remove_if_unused(path: str) -> None:
    with contextlib.suppress(OSError):  # it is gone
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            with locks.locked(os.path.join(path, _LOCK)) as (_, is_unused):
                pass  # names are unique, and NFS removes no folder with an open file
            if is_unused:
                shutil.rmtree(path, ignore_errors=True)

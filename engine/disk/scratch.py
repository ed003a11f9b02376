"""What a process has alone while it lives: locks of outputs, and temporary folders.

Output that is not resumed is written in a temporary folder, and moved out when complete. Its name is random and only
its owner may enter it, so that nobody can plant a link where a file will be opened. A process locks its
folders, and leftovers, which are not locked, are removed. The death of a process frees its locks.
"""

import contextlib
import fcntl
import functools
import os
import re
import secrets
import shutil
import socket
import stat
from typing import Iterator, Optional, Tuple

from engine import log
from engine.errors import UserError

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
        with locked(os.path.join(draft, _LOCK)):  # NFS locks no folders
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
            with locked(os.path.join(path, _LOCK)) as (_, is_unused):
                pass  # names are unique, and NFS removes no folder with an open file
            if is_unused:
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(path: str) -> Iterator[Tuple[int, Optional[bool]]]:
    """Tries to lock a file for this context, or until the process dies; creates it if missing.

    Yields its descriptor, and whether this process has locked it (None: the disk has no locks).
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        is_held: Optional[bool] = None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = os.path.samestat(os.lstat(path), os.fstat(descriptor))
        except (BlockingIOError, FileNotFoundError):  # its holder may remove it as it ends
            is_held = False
        except OSError:
            pass
        yield descriptor, is_held
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(path: str, output: str) -> Iterator[None]:
    """A context in which no other process writes an output. On a disk without locks it only warns.

    Args:
        path: the lock's file, which is removed at the end.
        output: the output, for the error message, such as "--output_dir=out".
    """
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise UserError(f"{path} is no regular file, as a lock of {output} is: remove it")
    with locked(path) as (descriptor, is_held):
        if is_held is False:
            raise UserError(f"{output} is being written by {_read(path) or 'another process'}: wait for its end, or "
                            "name another output")
        if is_held is None:
            log.warn(f"the disk of {path} has no locks, which would keep two processes from writing {output}")
        _remove_leftovers(os.path.realpath(os.path.dirname(path)))  # a whole output needs no new folder
        try:
            with contextlib.suppress(OSError):  # on a full disk the lock alone counts
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            yield
        finally:
            with contextlib.suppress(OSError):  # its folder may be gone
                os.remove(path)


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, 200).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""

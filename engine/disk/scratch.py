"""What a process has alone while it lives: locks of outputs, and temporary folders.

Output that is not resumed is written in a temporary folder, and moved out when complete. Its name is random and only
its owner may enter it, so that nobody can plant a link where a file will be opened. A process locks its
folders, and leftovers, which are not locked, are removed. The death of a process frees its locks.

Some disks have no locks, or none that other machines see. So a lock's file also has a token of its owner:
the process that finds another's there has lost its output to it (`check_owner`).
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
from typing import Dict, Iterator, Optional, Tuple

from engine import log
from engine.errors import UserError

PREFIX = ".bert-tmp-"  # the host's name and random digits follow
_LOCK = f"{PREFIX}lock"

# Of the locks that this process holds: the path → the output and the content, its owner and a token.
_held: Dict[str, Tuple[str, str]] = {}


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
    """A context in which no other process writes an output.

    On a disk without locks it warns, and the last process that begins has the output: see `check_owner`.

    Args:
        path: the lock's file, which is removed at the end.
        output: the output, for the error message, such as "--output_dir=out".
    """
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise UserError(f"{path} is no regular file, as a lock of {output} is: remove it")
    with locked(path) as (descriptor, is_held):
        earlier, own = _read(path), f"process {os.getpid()} on {socket.gethostname()} {secrets.token_hex(8)}"
        if is_held is False:
            raise UserError(f"{output} is being written by {_owner(earlier)}: wait for its end, or name another "
                            "output")
        if is_held is None:
            log.warn(f"the disk of {path} has no locks, which would keep two processes from writing {output}"
                     + (f"; {_owner(earlier)} may be writing it, and ends then" if earlier else ""))
        _remove_leftovers(os.path.realpath(os.path.dirname(path)))  # a whole output needs no new folder
        try:
            with contextlib.suppress(OSError) if is_held else contextlib.nullcontext():
                os.ftruncate(descriptor, 0)  # on a full disk the lock alone counts
                os.pwrite(descriptor, own.encode(), 0)
                _held[path] = output, own
            yield
        finally:
            _held.pop(path, None)
            # Without locks, the token that took another's place stays: that process may still live.
            if _read(path) in ("", own) and (is_held or not earlier):
                with contextlib.suppress(OSError):  # its folder may be gone
                    os.remove(path)


def check_owner() -> None:
    """Raises a UserError if an output of this process is another's by now."""
    if lost():
        raise UserError(lost())


def lost() -> str:
    """Says if another process has begun to write an output that this one has locked; empty if not."""
    found = {path: _read(path) for path in _held}
    return next((f"{output} is being written by {_owner(found[path])}, which began later, and no lock of its disk "
                 "kept it away: this process writes no more there"
                 for path, (output, own) in _held.items() if found[path] not in ("", own)), "")


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, 200).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""


def _owner(content: str) -> str:
    return content.rsplit(" ", 1)[0] or "another process"

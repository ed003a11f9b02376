"""Locks of files, which a process holds until it dies: no leftover of a killed one stops another."""

import contextlib
import fcntl
import os
import socket
from typing import Iterator, Optional, Tuple

from engine.errors import UserError


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
    """A context in which no other process writes an output; on a disk without locks, it may.

    Args:
        path: of the lock's file, which is removed at the end.
        output: the output, for the error message, such as "--output_dir=out".
    """
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise UserError(f"{path} is no regular file, as a lock of {output} is: remove it")
    with locked(path) as (descriptor, is_held):
        if is_held is False:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
            raise UserError(f"{output} is being written by {holder}: wait for its end, or name another "
                            "output")
        try:
            with contextlib.suppress(OSError):  # on a full disk the lock alone counts
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            yield
        finally:
            with contextlib.suppress(OSError):  # its folder may be gone
                os.remove(path)

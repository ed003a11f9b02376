"""Locks of files, which a process holds until it dies: no leftover of a killed one stops another."""

import contextlib
import fcntl
import os
import socket
from typing import Iterator, NamedTuple, Optional

from engine.errors import UserError


class Lock(NamedTuple):
    """An attempt to lock a file."""
    descriptor: int
    is_held: Optional[bool]  # by this process; False: by another one; None: the disk has no locks


@contextlib.contextmanager
def locked(path: str) -> Iterator[Lock]:
    """Tries to lock a file for this context, or until the process dies; creates it if missing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        is_held: Optional[bool] = None
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            except BlockingIOError:
                is_held = False
        yield Lock(descriptor, is_held)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(path: str, output: str) -> Iterator[None]:
    """A context in which no other process writes an output, on this machine or on a shared disk.

    On a disk without locks, nothing keeps others away.

    Args:
        path: of the lock's file, beside the output; it is removed at the end.
        output: the output in an error message, such as its path or "--output_dir=out".

    Raises:
        UserError: another process writes it.
    """
    while True:
        with locked(path) as lock:
            if lock.is_held is False:
                holder = os.pread(lock.descriptor, 200, 0).decode("utf-8", "replace")
                raise UserError(f"{output} is being written by {holder or 'another process'}: wait for "
                                "its end, or name another output")
            if not _is_at(path, lock.descriptor):
                continue  # the holder removed it after we had opened it
            with contextlib.suppress(OSError):  # on a full disk the lock alone counts
                os.ftruncate(lock.descriptor, 0)
                os.pwrite(lock.descriptor,
                          f"process {os.getpid()} on {socket.gethostname()}".encode("utf-8"), 0)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # the folder may be gone
                    os.remove(path)
            return


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False

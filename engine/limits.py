"""Limits of memory, threads and open files: one line for each error that they cause."""

import errno
import os
import re
import resource
import sys
import threading
from typing import Optional

from engine.errors import USER_ERROR_STATUS

# What an error says → one line.
_EXHAUSTED = {
    rf"{os.strerror(errno.EMFILE)}|{os.strerror(errno.ENFILE)}":
        "too many open files: raise the limit (ulimit -n)",
    r"can't start new thread|^\[Errno 11\]":
        "no more threads or processes can be started: raise the limit (ulimit -u, ulimit -v, or a container's pids)",
    rf"{os.strerror(errno.ENOMEM)}|OOM when|bad_alloc|MemoryError|failed to map segment":
        "out of memory: lower the batch size, free memory, or raise the limit (ulimit -v, or a container's)"}
# Of a command: TensorFlow's pools (operations, their parts, its input) and ours have a thread for each core.
_LEAST_THREADS = 32 + 4 * len(os.sched_getaffinity(0))
_LEAST_ADDRESS_SPACE = 1 << 28  # bytes; with less, NumPy may try for ever to be loaded


def explained(error: BaseException) -> Optional[str]:
    """What to say of an error if something has run out; None if it has another cause."""
    said = f"{error}\n{type(error).__mro__}"
    return next((line for pattern, line in _EXHAUSTED.items() if re.search(pattern, said)), None)


def require_threads() -> None:
    """Raises a RuntimeError if threads cannot be started: libraries would abort where they start their own."""
    is_done, threads = threading.Event(), []
    try:
        for _ in range(_LEAST_THREADS):
            threads.append(threading.Thread(target=is_done.wait, daemon=True))
            threads[-1].start()
    finally:
        is_done.set()
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join()


def check_before_loading() -> None:
    """Has a command of ours that cannot even be loaded end in one line, as one that runs does."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # With -m, Python loads the packages of a module before the module.
    if sys.argv[0] == "-m" or os.path.abspath(sys.argv[0]).startswith(root + os.sep):
        sys.excepthook = _say
        if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _LEAST_ADDRESS_SPACE:
            raise MemoryError
        require_threads()


def _say(kind, error, trace) -> None:
    line = explained(error)
    if line:
        sys.stderr.write(f"error: {line}\n")
        sys.exit(USER_ERROR_STATUS)
    sys.__excepthook__(kind, error, trace)

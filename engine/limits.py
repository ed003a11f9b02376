"""Limits of memory, also of a card, threads and open files: one line for each error that they cause."""

import errno
import os
import re
from typing import Optional

# What an error says → one line.
_EXHAUSTED = {
    rf"{os.strerror(errno.EMFILE)}|{os.strerror(errno.ENFILE)}":
        "too many open files: raise the limit (ulimit -n)",
    r"can't start new thread|^\[Errno 11\]":
        "no more threads or processes can be started: raise the limit (ulimit -u, ulimit -v, or a container's pids)",
    # Of a card that cannot even be opened, or take a model's weights.
    "CUDA.*out of memory|Dst tensor is not initialized":
        "out of memory on a card: another process may hold it, which nvidia-smi shows; end that process, or choose a "
        "free card with CUDA_VISIBLE_DEVICES",
    rf"{os.strerror(errno.ENOMEM)}|OOM when|bad_alloc|MemoryError|failed to map segment":
        "out of memory: lower the batch size, free memory, or raise the limit (ulimit -v, or a container's)"}


def explained(error: BaseException) -> Optional[str]:
    """What to say of an error if something has run out; None if it has another cause."""
    said = f"{error}\n{type(error).__mro__}"
    return next((line for pattern, line in _EXHAUSTED.items() if re.search(pattern, said)), None)

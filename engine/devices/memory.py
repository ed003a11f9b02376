"""Peak memory, and out-of-memory errors in one line: the size of the step, and a remedy."""

import contextlib
import re
import resource
import sys
from typing import Callable, Iterator, Optional

import tensorflow.compat.v1 as tf

from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError

# TensorFlow raises the same class for a full disk; its message always mentions OOM at the end.
_MEMORY = re.compile(r"OOM when|out of memory|MemoryError|(failed|unable) to allocate",
                     re.IGNORECASE)


@contextlib.contextmanager
def explained(explain: Callable[[], str]) -> Iterator[None]:
    """Turns an out-of-memory error into a UserError with the text of `explain`; others pass."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        if not (isinstance(error, MemoryError) or _MEMORY.search(error.message)):
            raise
        raise UserError(f"out of memory {explain()}") from error


def peak_gb(devices: Devices) -> Optional[float]:
    """The peak memory in 10^9 bytes: the highest of any card, or on the CPU that of the process.

    None on cards where TensorFlow does not report it.
    """
    if devices.kind != "CPU":
        used = runtime.peak_gpu_memory(len(devices.names))
        return used and used / 1e9
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, KiB elsewhere
    return used * (1 if sys.platform == "darwin" else 1024) / 1e9

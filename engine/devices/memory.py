"""Explains out-of-memory errors in one line: the size of the step, and a remedy."""

import contextlib
import re
from typing import Callable, Iterator

import tensorflow.compat.v1 as tf

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

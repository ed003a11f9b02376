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
    except MemoryError as error:
        raise UserError(f"out of memory {explain()}") from error
    except tf.errors.ResourceExhaustedError as error:
        if not _MEMORY.search(error.message):
            raise
        raise UserError(f"out of memory {explain()}") from error


def smaller_batch(batch_size: int, times: int) -> str:
    """The flags for the same training step in less memory, for the middle of a message.

    Args:
        batch_size: --train_batch_size now.
        times: --gradient_accumulation_steps now.

    Returns:
        The text; empty for a batch of one example.
    """
    divisors = [divisor for divisor in range(2, batch_size + 1) if batch_size % divisor == 0]
    if not divisors:
        return ""
    return (f"--train_batch_size={batch_size // divisors[0]} "
            f"--gradient_accumulation_steps={times * divisors[0]} make the same step in less, and ")

"""Reads lines as they arrive, so that a single line is answered at once."""

import collections
import os
import select
from typing import Deque, List

_READ_BYTES = 1 << 20


class ArrivingLines:
    """The lines of a pipe, a terminal or a file, in bytes, without their ends.

    An iterator. `must_wait` tells its caller to process the collected lines before it reads on; it
    is never true for a regular file.

    Args:
        descriptor: the open file; default: standard input.
    """

    def __init__(self, descriptor: int = 0):
        self._descriptor = descriptor
        self._lines: Deque[bytes] = collections.deque()
        self._begun: List[bytes] = []  # parts of an incomplete line
        self._is_open = True

    def __iter__(self) -> "ArrivingLines":
        return self

    def __next__(self) -> bytes:
        while not self._lines and self._is_open:
            self._read()
        if not self._lines:
            raise StopIteration
        return self._lines.popleft()

    def must_wait(self) -> bool:
        """Whether the next line, or the end, has not arrived yet."""
        while not self._lines and self._is_open:
            if not select.select([self._descriptor], [], [], 0)[0]:
                return True
            self._read()
        return False

    def _read(self) -> None:
        block = os.read(self._descriptor, _READ_BYTES)
        self._is_open = bool(block)
        first, *others = block.split(b"\n")
        self._begun.append(first)
        if others or not block and any(self._begun):
            self._lines.append(b"".join(self._begun))
            self._lines.extend(others[:-1])
            self._begun = others[-1:]

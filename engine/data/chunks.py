"""Cuts a stream into chunks of bounded size, to process it in bounded memory.

Lines of standard input come as they arrive, so that a single line is answered at once.
"""

import collections
import io
import os
import select
from concurrent import futures
from typing import Callable, Deque, Iterable, Iterator, List, Optional, TypeVar

from engine.data.parts import LINE_BYTES

_READ_BYTES = 1 << 20

Item = TypeVar("Item")


class ArrivingLines:
    """The lines of a pipe, a terminal or a file, in bytes.

    `must_wait` tells its caller to process the collected lines before it reads on; it
    is never true for a regular file.

    Args:
        descriptor: the open file; default: standard input.
    """

    def __init__(self, descriptor: int = 0):
        self._descriptor = descriptor
        self._lines: Deque[bytes] = collections.deque()
        self._begun = bytearray()  # an incomplete line
        self._is_open = True

    def readline(self, size: int) -> bytes:
        """The next line with its end; b"" at the end. One of over `parts.LINE_BYTES` comes in pieces."""
        while not self._lines and self._is_open:
            self._read()
        return self._lines.popleft() if self._lines else b""

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
        self._begun += block
        if b"\n" in block or len(self._begun) > LINE_BYTES or not block:
            lines = io.BytesIO(self._begun).readlines()
            is_begun = block and not lines[-1].endswith(b"\n") and len(lines[-1]) <= LINE_BYTES
            self._begun = bytearray(lines.pop() if is_begun else b"")
            self._lines.extend(lines)


def in_chunks(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1,
              arriving: Optional[ArrivingLines] = None) -> Iterator[List[Item]]:
    """Yields all items in order, in lists of at least `size` in total.

    The size of an item is 1, or `size_of(item)`. A list is smaller at the end, or if the next item has
    not arrived yet; none is empty.
    """
    chunk, total = [], 0
    for item in items:
        chunk.append(item)
        total += size_of(item)
        if total >= size or arriving and arriving.must_wait():
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next one while the caller handles one.

    Not for lines that arrive: at the end of the process the thread would wait for the next one.
    """
    end = object()
    with futures.ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, end)
        while True:
            item = following.result()
            if item is end:
                return
            following = thread.submit(next, items, end)
            yield item

"""Cuts a stream into chunks of bounded size, to process it in bounded memory.

Lines of standard input come as they arrive, so that a single line is answered at once.
"""

import collections
import os
import select
from concurrent import futures
from typing import Callable, Deque, Iterable, Iterator, List, Optional, TypeVar

_READ_BYTES = 1 << 20

Item = TypeVar("Item")


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

    def __iter__(self) -> Iterator[bytes]:
        while self._lines or self._is_open:
            if self._lines:
                yield self._lines.popleft()
            else:
                self._read()

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

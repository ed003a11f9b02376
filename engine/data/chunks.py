"""Cuts a stream into chunks of bounded size, to process it in bounded memory."""

from typing import Callable, Iterable, Iterator, List, Optional, TypeVar

from engine.data.arriving_lines import ArrivingLines

Item = TypeVar("Item")


def in_chunks(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1,
              arriving: Optional[ArrivingLines] = None) -> Iterator[List[Item]]:
    """Yields all items in order, in lists of at least `size` in total.

    The size of an item is 1, or `size_of(item)`. The last list may be smaller, and so may a list
    before an item that has not arrived yet; none is empty.
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

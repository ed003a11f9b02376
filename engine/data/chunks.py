"""A stream in chunks of bounded size, so that what is in memory does not grow with it."""

from typing import Callable, Iterable, Iterator, List, TypeVar

Item = TypeVar("Item")


def in_chunks(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1) -> Iterator[List[Item]]:
    """All items in their order, in lists that end where their sizes add up to `size` or more.

    Each item counts 1 unless `size_of` says otherwise. The last list may be smaller; none is
    empty.
    """
    chunk, total = [], 0
    for item in items:
        chunk.append(item)
        total += size_of(item)
        if total >= size:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk

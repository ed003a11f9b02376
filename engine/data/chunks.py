"""A stream in chunks of bounded size, to be processed in bounded memory."""

from typing import Callable, Iterable, Iterator, List, TypeVar

Item = TypeVar("Item")


def in_chunks(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1) -> Iterator[List[Item]]:
    """All items in order, in lists that are complete once their sizes add up to `size`.

    The size of an item is 1, or what `size_of` returns. The last list may be smaller; none
    is empty.
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

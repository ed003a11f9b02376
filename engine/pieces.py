"""A stream in pieces of bounded size, so that what is in memory does not grow with it."""

from typing import Callable, Iterable, Iterator, List, TypeVar

Item = TypeVar("Item")


def in_pieces(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1) -> Iterator[List[Item]]:
    """All items in their order, in lists that end where their sizes add up to `size` or more.

    Each item counts 1 unless `size_of` says otherwise. The last list may be smaller; none is
    empty.
    """
    piece, total = [], 0
    for item in items:
        piece.append(item)
        total += size_of(item)
        if total >= size:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece

"""Long sentences in overlapping windows, and which window decides about a word.

A window is a range of words whose pieces fit into a model's input. Neighbours overlap by about
half, so that each word has at least a quarter of a window of context on either side in one of them,
where the sentence has it.
"""

from typing import List, NamedTuple, Sequence

import numpy as np


class Window(NamedTuple):
    """Consecutive words of a sentence."""
    first: int  # word, from 0
    end: int  # the word after the last


def cut(num_pieces: Sequence[int], limit: int) -> List[Window]:
    """The windows of a sentence, from left to right; one if it fits.

    Args:
        num_pieces: of each word, at least 1 and at most `limit`.
        limit: the pieces that a window may have.
    """
    ends = np.cumsum(num_pieces)  # the pieces up to each word and with it
    starts = ends - num_pieces
    found: List[Window] = []
    first = 0
    while True:
        end = int(np.searchsorted(ends, starts[first] + limit, side="right"))
        if end == len(ends):
            # The last window begins as early as it can: its words gain context.
            first = int(np.searchsorted(starts, ends[-1] - limit, side="left"))
            found.append(Window(first, end))
            return found
        found.append(Window(first, end))
        half = int(np.searchsorted(starts, starts[first] + limit // 2, side="left"))
        first = min(max(half, first + 1), end)


def deciding(num_pieces: Sequence[int], windows: Sequence[Window]) -> np.ndarray:
    """The window where each word has most context, [words]; of equals, the first.

    The context of a word is the number of pieces on that side, left or right, that has fewer.
    """
    ends = np.cumsum(num_pieces)
    starts = ends - num_pieces
    most = np.full(len(ends), -1)
    chosen = np.zeros(len(ends), np.int64)
    for number, (first, end) in enumerate(windows):
        words = slice(first, end)
        context = np.minimum(starts[words] - starts[first], ends[end - 1] - ends[words])
        is_better = context > most[words]
        most[words][is_better] = context[is_better]
        chosen[words][is_better] = number
    return chosen

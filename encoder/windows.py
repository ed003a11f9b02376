"""Windows over a long text: where they begin, and which has the most context around a token.

As in Google's run_squad.py.
"""

from typing import NamedTuple

import numpy as np

class Windows(NamedTuple):
    """The windows over one text."""
    starts: np.ndarray  # the first token of the text in each, [w]
    lengths: np.ndarray  # tokens of the text in each, [w]


def over(num_tokens: int, room: int, doc_stride: int) -> Windows:
    """The windows over a text of `num_tokens`; none if it has no tokens.

    Args:
        room: the most tokens of the text in a window.
        doc_stride: tokens from the beginning of a window to that of the next.
    """
    if not num_tokens:
        return Windows(np.zeros(0, np.int64), np.zeros(0, np.int64))
    stride = min(room, doc_stride)
    num_windows = 1 + max(0, -((room - num_tokens) // stride))
    starts = np.arange(num_windows) * stride
    return Windows(starts, np.minimum(num_tokens - starts, room))


def of_most_context(windows: Windows) -> np.ndarray:
    """For each token of a text, the number of the window with the most context around it, [tokens].

    The context is the number of tokens on the shorter side, plus a hundredth of the window's length,
    as in the original; the first of a tie.
    """
    num_tokens = int((windows.starts + windows.lengths).max(initial=0))
    best = np.full(num_tokens, -np.inf)
    chosen = np.zeros(num_tokens, np.int64)
    for number, (start, length) in enumerate(zip(windows.starts.tolist(),
                                                 windows.lengths.tolist())):
        left = np.arange(length)
        score = np.minimum(left, length - 1 - left) + 0.01 * length
        is_better = score > best[start:start + length]
        best[start:start + length][is_better] = score[is_better]
        chosen[start:start + length][is_better] = number
    return chosen

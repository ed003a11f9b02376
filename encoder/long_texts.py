"""Cuts texts that are longer than the model's input, or divides them into windows.

`head` keeps their beginning, `head_tail` their beginning and their end (Sun et al. 2019, How to
Fine-Tune BERT for Text Classification, section 5.3.1), and `windows` makes several examples of
them, each of which has a part of the text.
"""

import dataclasses
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from encoder.task_json import FILE
from engine.errors import UserError
from engine.settings import setting

# The entry of a classifier's description that holds `LongTexts.facts`.
ENTRY = "long_texts"

HEAD, HEAD_TAIL, WINDOWS = WAYS = ("head", "head_tail", "windows")
_DESCRIPTIONS = {HEAD: "only their beginning is used",
                 HEAD_TAIL: "only their beginning and end are used",
                 WINDOWS: "each becomes several windows"}

# The beginning has a quarter of what is kept, as in the paper (128 of 510 tokens).
_HEAD_SHARE = 4
# By default consecutive windows share a quarter of their tokens.
_OVERLAP_SHARE = 4


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """How long texts are cut. Part of what a trained model is: its folder names it."""
    topic = "Long texts"
    long_texts: str = setting(
        HEAD, "What becomes of texts longer than --max_seq_length: head keeps their beginning, "
        "head_tail their beginning and end; windows makes overlapping examples of them, whose "
        "mean scores count. Default: as the folder of a trained classifier says, or else head.",
        choices=WAYS)
    window_overlap: Optional[int] = setting(
        None, "With --long_texts=windows: tokens that consecutive windows share. Default: a "
        "quarter of a window.", positive=True)

    def check(self, max_seq_length: int) -> "LongTexts":
        """Returns itself; raises a UserError if the parts do not fit together, or the length."""
        overlap = self.window_overlap
        if overlap is not None and self.long_texts != WINDOWS:
            raise UserError(f"--window_overlap needs --long_texts={WINDOWS}")
        if overlap is not None and overlap > max_seq_length - 3:
            raise UserError(f"--window_overlap={overlap}: of a single text, --max_seq_length="
                            f"{max_seq_length} has room for {max_seq_length - 2} tokens, and "
                            "this must be fewer")
        return self

    def facts(self) -> Optional[Dict[str, Any]]:
        """The values that differ from their defaults, for JSON; None if there are none."""
        if self.long_texts == HEAD:
            return None
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value is not None}

    def describe(self, num_cut: int, num_texts: int, max_seq_length: int) -> str:
        """For a log line: how many of the texts do not fit, and what becomes of them."""
        return (f"{num_cut:,} of {num_texts:,} texts are longer than "
                f"--max_seq_length={max_seq_length}: {_DESCRIPTIONS[self.long_texts]}")

    def num_head(self, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """How many of the `kept` tokens of texts of these lengths are of the beginning, [n]."""
        if self.long_texts != HEAD_TAIL:
            return kept
        return np.where(kept < lengths, kept // _HEAD_SHARE, kept)

    def windows(self, lengths: np.ndarray, size: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The windows of `size` tokens over texts, each as (index of the text, its first token).

        The last window of a text is at its end, so that all have the full size.

        Args:
            lengths, size: [n]; `size` is at most `lengths`.
        """
        if self.long_texts != WINDOWS:
            return np.arange(len(lengths)), np.zeros(len(lengths), np.int64)
        overlap = size // _OVERLAP_SHARE if self.window_overlap is None else self.window_overlap
        step = np.maximum(size - overlap, 1)  # which may be more than a pair's text has room for
        rest = np.where(size > 0, lengths - size, 0)  # a pair may leave no room for this text
        counts = 1 - -rest // step  # 1 + rest / step, rounded up
        texts = np.repeat(np.arange(len(lengths)), counts)
        number = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
        return texts, np.minimum(number * step[texts], rest[texts])


def of_description(description: Mapping[str, Any]) -> LongTexts:
    """What a classifier's description (see `task_json`) says; raises a UserError if damaged."""
    facts = description.get(ENTRY)
    if facts is None:
        return LongTexts()
    try:
        ways = LongTexts(**facts)
        overlap = ways.window_overlap
        if ways.long_texts in WAYS and (
                overlap is None or isinstance(overlap, int) and overlap > 0):
            return ways
    except TypeError:  # no object, or one with other entries
        pass
    raise UserError(f"{FILE} of the trained model is damaged: its {ENTRY} are {str(facts)[:80]}")

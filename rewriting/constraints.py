"""A user's constraints on rewritten texts."""

import re
import unicodedata
from typing import Optional, Pattern, Sequence

import numpy as np

from rewriting.pool import Pool
from rewriting.texts import LETTER, Slot


class Constraints:
    """What is wanted of rewrites.

    Args:
        max_phrase_length: the most characters of a phrase; None: any.
        kept: words that a rewrite must have if its text has them.
        forbidden: words that no rewrite may have.
    """

    def __init__(self, max_phrase_length: Optional[int], kept: Sequence[str],
                 forbidden: Sequence[str]):
        self._longest = max_phrase_length
        self._kept = [pattern_of(word) for word in kept]
        self._forbidden = [pattern_of(word) for word in forbidden]

    def allow(self, slot: Slot, phrase: str) -> bool:
        """Whether the phrase may replace the clause of the slot."""
        text, rewritten = slot.filled(slot.clause), slot.filled(phrase)
        return (not any(is_in(word, rewritten) for word in self._forbidden)
                and all(is_in(word, rewritten) for word in self._kept if is_in(word, text)))

    def mask(self, pool: Pool) -> np.ndarray:
        """The phrases of a pool that some slot may take, bool [phrases]."""
        allowed = pool.is_usable.copy()
        if self._longest or self._forbidden:
            for row, text in enumerate(pool.phrases()):
                if len(text) > (self._longest or len(text)) or any(
                        is_in(word, text) for word in self._forbidden):
                    allowed[row] = False
        return allowed


def pattern_of(word: str) -> Pattern:
    """What finds a word, whatever its case; no part of another word in scripts with spaces."""
    word = unicodedata.normalize("NFC", word)
    start = f"(?<!{LETTER})" if re.match(LETTER, word) else ""
    end = f"(?!{LETTER})" if re.match(LETTER, word[-1]) else ""
    return re.compile(start + re.escape(word) + end, re.IGNORECASE)


def is_in(word: Pattern, text: str) -> bool:
    """Whether a text has the word, in either way to encode its accents."""
    return word.search(unicodedata.normalize("NFC", text)) is not None

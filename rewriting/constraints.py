"""A user's constraints on rewritten texts."""

import re
import unicodedata
from typing import Optional, Sequence

import numpy as np

from rewriting.pool import Pool
from rewriting.texts import LETTER, Slot


class ConstrainedWord:
    """A word that a user requires or forbids.

    Case is ignored, and so are the two ways to encode an accent. In scripts with spaces
    between words, a part of another word does not count.
    """

    def __init__(self, word: str):
        word = unicodedata.normalize("NFC", word)
        start = f"(?<!{LETTER})" if re.match(LETTER, word) else ""
        end = f"(?!{LETTER})" if re.match(LETTER, word[-1]) else ""
        self._pattern = re.compile(start + re.escape(word) + end, re.IGNORECASE)

    def is_in(self, text: str) -> bool:
        """Whether a text has the word."""
        return self._pattern.search(unicodedata.normalize("NFC", text)) is not None


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
        self._kept = [ConstrainedWord(word) for word in kept]
        self._forbidden = [ConstrainedWord(word) for word in forbidden]

    def allow(self, slot: Slot, phrase: str) -> bool:
        """Whether the phrase may replace the clause of the slot."""
        text, rewritten = slot.filled(slot.clause), slot.filled(phrase)
        return (not any(word.is_in(rewritten) for word in self._forbidden)
                and all(word.is_in(rewritten) for word in self._kept if word.is_in(text)))

    def mask(self, pool: Pool) -> np.ndarray:
        """The phrases of a pool that some slot may take, bool [phrases]."""
        allowed = pool.is_usable.copy()
        if self._longest or self._forbidden:
            for row, text in enumerate(pool.phrases()):
                if len(text) > (self._longest or len(text)) or any(
                        word.is_in(text) for word in self._forbidden):
                    allowed[row] = False
        return allowed

"""A user's constraints on rewritten texts."""

import re
import unicodedata
from typing import NamedTuple, Optional, Sequence, Tuple

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


class Constraints(NamedTuple):
    """Made by `make_constraints`."""
    max_phrase_length: Optional[int]  # characters; None: any
    kept: Tuple[ConstrainedWord, ...]  # a rewrite must have those that its text has
    forbidden: Tuple[ConstrainedWord, ...]  # no rewrite may have them

    def allow(self, slot: Slot, phrase: str) -> bool:
        """Whether the phrase may replace the clause of the slot."""
        rewritten = slot.filled(phrase)
        return (not any(word.is_in(rewritten) for word in self.forbidden)
                and all(word.is_in(rewritten) for word in self.kept
                        if word.is_in(slot.filled(slot.clause))))

    def needed(self, slot: Slot) -> Tuple[int, ...]:
        """The numbers of the kept words that only the clause has, not the rest of its text."""
        rest = slot.filled("\n")
        return tuple(number for number, word in enumerate(self.kept)
                     if word.is_in(slot.clause) and not word.is_in(rest))


def make_constraints(max_phrase_length: Optional[int], kept: Sequence[str],
                     forbidden: Sequence[str]) -> Constraints:
    """Constraints from the words of a user."""
    return Constraints(max_phrase_length, tuple(map(ConstrainedWord, kept)),
                       tuple(map(ConstrainedWord, forbidden)))


class PoolMasks:
    """Which phrases of a pool are allowed, in general and for a clause with kept words."""

    def __init__(self, constraints: Constraints, pool: Pool):
        self._allowed = pool.is_usable.copy()
        self._has_kept = np.zeros([len(constraints.kept), len(self._allowed)], bool)
        for row, text in enumerate(pool.phrases() if any(constraints) else ()):
            if len(text) > (constraints.max_phrase_length or len(text)) or any(
                    word.is_in(text) for word in constraints.forbidden):
                self._allowed[row] = False
            self._has_kept[:, row] = [word.is_in(text) for word in constraints.kept]

    def mask(self, needed: Sequence[int]) -> np.ndarray:
        """The allowed phrases that have all these kept words, bool [phrases]."""
        if not needed:
            return self._allowed
        return self._allowed & self._has_kept[list(needed)].all(axis=0)

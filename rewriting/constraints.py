"""A user's constraints on rewritten texts."""

import re
import unicodedata
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from engine.data.store import Records
from rewriting import phrases
from rewriting.clauses import LETTER, Slot


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

    def allow_around(self, slot: Slot) -> bool:
        """Whether the text around the slot allows any phrase at all."""
        rest = slot.filled("\n")
        return not any(word.is_in(rest) for word in self.forbidden)


def make_constraints(max_phrase_length: Optional[int], kept: Sequence[str],
                     forbidden: Sequence[str]) -> Constraints:
    """Constraints from the words of a user."""
    return Constraints(max_phrase_length, tuple(map(ConstrainedWord, kept)),
                       tuple(map(ConstrainedWord, forbidden)))


class PoolMasks:
    """Which phrases of a pool are allowed, in general and for a clause with kept words."""

    def __init__(self, constraints: Constraints, records: Records, is_usable: np.ndarray):
        self._allowed = is_usable.copy()
        self._has_kept = [np.zeros(len(records), bool) for _ in constraints.kept]
        if any(constraints):
            self._look_at_each(constraints, records)
        self._of_needed = {(): self._allowed}

    def _look_at_each(self, constraints: Constraints, records: Records) -> None:
        for row, text in phrases.decode_all(records):
            if len(text) > (constraints.max_phrase_length or len(text)) or any(
                    word.is_in(text) for word in constraints.forbidden):
                self._allowed[row] = False
            for has, word in zip(self._has_kept, constraints.kept):
                has[row] = word.is_in(text)

    def mask(self, needed: Tuple[int, ...]) -> np.ndarray:
        """The allowed phrases that have all these kept words, bool [phrases]."""
        if needed not in self._of_needed:
            having: List[np.ndarray] = [self._has_kept[number] for number in needed]
            self._of_needed[needed] = np.logical_and.reduce([self._allowed, *having])
        return self._of_needed[needed]

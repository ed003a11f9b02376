"""What a user demands of a rewritten text."""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from engine.store import Records
from rewriting import phrases
from rewriting.clauses import LETTER, Slot


class Constraints(NamedTuple):
    """Made by `make_constraints`."""
    max_phrase_length: Optional[int]  # characters; None: any
    kept: Tuple["re.Pattern", ...]  # a word each: what the text has of them, its rewrite has
    forbidden: Tuple["re.Pattern", ...]  # a word each: no rewrite has it

    def allow(self, slot: Slot, phrase: str) -> bool:
        """Whether the text may be rewritten so."""
        rewritten = slot.filled(phrase)
        return (not any(word.search(rewritten) for word in self.forbidden)
                and all(word.search(rewritten) for word in self.kept
                        if word.search(slot.filled(slot.clause))))

    def needed(self, slot: Slot) -> Tuple[int, ...]:
        """Numbers of the kept words that the clause has and the rest of its text has not."""
        rest = slot.filled("\n")
        return tuple(number for number, word in enumerate(self.kept)
                     if word.search(slot.clause) and not word.search(rest))

    def allow_around(self, slot: Slot) -> bool:
        """Whether any phrase at all may stand in the slot."""
        rest = slot.filled("\n")
        return not any(word.search(rest) for word in self.forbidden)


def make_constraints(max_phrase_length: Optional[int], kept: Sequence[str],
                     forbidden: Sequence[str]) -> Constraints:
    """Words as a user gives them; upper and lower case are the same."""
    return Constraints(max_phrase_length, tuple(map(_pattern, kept)),
                       tuple(map(_pattern, forbidden)))


def _pattern(word: str) -> "re.Pattern":
    """Finds a word, not as a part of another one where its script has spaces between words."""
    start = f"(?<!{LETTER})" if re.match(LETTER, word) else ""
    end = f"(?!{LETTER})" if re.match(LETTER, word[-1]) else ""
    return re.compile(start + re.escape(word) + end, re.IGNORECASE)


class PoolMasks:
    """Which phrases of a pool may be used at all, and which for a clause with kept words."""

    def __init__(self, constraints: Constraints, records: Records, is_usable: np.ndarray):
        self._allowed = is_usable.copy()
        self._has_kept = [np.zeros(len(records), bool) for _ in constraints.kept]
        if any(constraints):
            self._look_at_each(constraints, records)
        self._of_needed = {(): self._allowed}

    def _look_at_each(self, constraints: Constraints, records: Records) -> None:
        for row, text in phrases.decode_all(records):
            if len(text) > (constraints.max_phrase_length or len(text)) or any(
                    word.search(text) for word in constraints.forbidden):
                self._allowed[row] = False
            for has, word in zip(self._has_kept, constraints.kept):
                has[row] = word.search(text) is not None

    def mask(self, needed: Tuple[int, ...]) -> np.ndarray:
        """Phrases with all these kept words, bool [phrases]."""
        if needed not in self._of_needed:
            having: List[np.ndarray] = [self._has_kept[number] for number in needed]
            self._of_needed[needed] = np.logical_and.reduce([self._allowed, *having])
        return self._of_needed[needed]

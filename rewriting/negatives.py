"""Negatives for slots: clauses of other texts, chosen at random or by similarity."""

import itertools
from typing import Dict, Iterator, List, Optional, Sequence, Set

import numpy as np

from engine.data import store, text_columns
from rewriting import bm25
from rewriting.texts import Slot, count_words

RANDOM, LIKE_LENGTH, BM25 = KINDS = ("random", "like_length", "bm25")
# The most draws to find a clause that is not in the text itself and not drawn before.
_MOST_DRAWS = 100
_LIKE = 0.8  # similar lengths: the shorter is at least this share of the longer


def columns_for(kinds: Sequence[str]) -> Dict[str, store.Column]:
    """The columns of a store for what `encode` returns."""
    return {"text": text_columns.COLUMN, "num_words": store.Column("uint16", ragged=False),
            **(bm25.COLUMNS if BM25 in kinds else {})}


def encode(clauses: Sequence[str], kinds: Sequence[str]) -> store.Chunk:
    """Clauses with the columns that drawing these kinds of negatives takes."""
    return {"text": text_columns.to_chunk(clauses),
            "num_words": np.minimum([count_words(clause) for clause in clauses], 2**16 - 1),
            **(bm25.encode(clauses) if BM25 in kinds else {})}


class Negatives:
    """Draws negatives for slots.

    Args:
        clauses: all clauses, as `encode` returns them.
        rows: the clauses that may be drawn, [n].
        kinds: some of KINDS, which take turns among the negatives of a slot.
        index: of the clauses; needed if BM25 is among the kinds.
        seed: of the draws.
    """

    def __init__(self, clauses: store.Records, rows: np.ndarray, kinds: Sequence[str],
                 index: Optional[bm25.Index], seed: int):
        self._clauses = clauses
        self._kinds = kinds
        self._random = np.random.RandomState(seed)
        num_words = clauses.scalars("num_words", rows)
        # Sorted by length, so that clauses of similar length are neighbours.
        self._rows = rows[np.argsort(num_words, kind="stable")]
        self._num_words = np.sort(num_words, kind="stable")
        self._index = index
        self._is_allowed = np.zeros(len(clauses), bool)
        self._is_allowed[rows] = True

    def draw(self, slots_of_texts: Sequence[Sequence[Slot]], count: int
             ) -> Iterator[List[List[str]]]:
        """For each slot of each text `count` negatives, or fewer if there are no more.

        Clauses of the text itself are not drawn.
        """
        for its_slots, hard_rows in zip(slots_of_texts, self._hard_rows(slots_of_texts, count)):
            own = {slot.clause for slot in its_slots}
            yield [self._draw_for(slot, own, count, hard_rows) for slot in its_slots]

    def _hard_rows(self, slots_of_texts: Sequence[Sequence[Slot]],
                   count: int) -> List[np.ndarray]:
        """For each text the clauses that BM25 finds nearest to it, as when rewriting."""
        if self._index is None:
            return [np.zeros(0, np.int64)] * len(slots_of_texts)
        texts = [its_slots[0].filled(its_slots[0].clause) if its_slots else ""
                 for its_slots in slots_of_texts]
        # Some will be the text's own, or duplicates.
        most_own = max(map(len, slots_of_texts), default=0)
        matches = self._index.top(texts, 4 * count + 2 * most_own, self._is_allowed)
        return [match.rows for match in matches]

    def _draw_for(self, slot: Slot, own: Set[str], count: int,
                  hard_rows: np.ndarray) -> List[str]:
        hard = iter(hard_rows)
        drawn: List[str] = []
        for number in range(count):
            kind = self._kinds[number % len(self._kinds)]
            preferred = {RANDOM: (), LIKE_LENGTH: self._like_rows(slot), BM25: hard}[kind]
            texts = map(self._text, itertools.chain(preferred, self._any_rows()))
            found = next((text for text in texts if text not in own and text not in drawn), None)
            if found is not None:
                drawn.append(found)
        return drawn

    def _text(self, row: int) -> str:
        return text_columns.from_chunk(self._clauses.values("text", np.array([row])))[0]

    def _any_rows(self) -> Iterator[int]:
        return self._rows_between(0, len(self._rows))

    def _like_rows(self, slot: Slot) -> Iterator[int]:
        length = count_words(slot.clause)
        return self._rows_between(*np.searchsorted(
            self._num_words, [length * _LIKE, np.nextafter(length / _LIKE, np.inf)]))

    def _rows_between(self, first: int, last: int) -> Iterator[int]:
        """Random clauses from `first` up to `last` in the order of length; all of them, if few."""
        if last - first <= _MOST_DRAWS:
            yield from self._rows[first + self._random.permutation(last - first)]
            return
        for _ in range(_MOST_DRAWS):
            yield self._rows[self._random.randint(first, last)]

"""Rewrites texts: a search finds candidates in the pool, and the model scores them."""

from typing import Callable, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from encoder.encoding import Encoding
from engine.data import store
from engine.inference import Predictor
from rewriting import data, pairs, phrases
from rewriting.clauses import Slot, clauses, slots
from rewriting.constraints import Constraints, PoolMasks
from rewriting.pool import Pool


Predict = Callable[[pairs.Pairs], np.ndarray]  # the model: pairs -> logits, [pairs, 2]


class Rewrite(NamedTuple):
    """A slot of a text with another phrase in it."""
    slot: Slot
    phrase: str
    probability: float  # that the phrase fits

    @property
    def text(self) -> str:
        """The text with the phrase in the slot."""
        return self.slot.filled(self.phrase)


class Limits(NamedTuple):
    """How many clauses, candidates and rewrites there are at most."""
    min_words: int  # in a clause that is replaced
    num_candidates: int  # phrases that the model scores for each clause
    top_k: int  # rewrites of each text


class Rewriter:
    """A trained scorer and a pool of phrases."""

    def __init__(self, encoding: Encoding, pool: Pool, constraints: Constraints, limits: Limits):
        self._encoding = encoding
        self._pool = pool
        self._constraints = constraints
        self._limits = limits
        self._masks = PoolMasks(constraints, pool.records, pool.is_usable)

    def candidates(self, texts: Sequence[str]) -> Tuple[List[Tuple[int, Slot]], pairs.Pairs]:
        """The slots of some texts, each with its text's number, and the pairs to score."""
        slots_of_texts = [slots(text, self._limits.min_words) for text in texts]
        found = [(number, slot) for number, its_slots in enumerate(slots_of_texts)
                 for slot in its_slots if self._constraints.allow_around(slot)]
        # Repeating a clause of the text is not a rewrite.
        own_clauses = [set(map(_normalized, clauses(text))) for text in texts]
        rows_of_slots = self._search(texts, found, own_clauses)
        tried = [(number, row) for number, rows in enumerate(rows_of_slots) for row in rows]
        numbers, rows = np.array(tried, np.int64).reshape(-1, 2).T
        contexts = store.Records.of_chunk(pairs.encode_contexts(
            [slot.before for _, slot in found], [slot.after for _, slot in found],
            self._encoding))
        return found, self._pairs(contexts, numbers, rows)

    def _search(self, texts: Sequence[str], found: List[Tuple[int, Slot]],
                own_clauses: List[Set[str]]) -> List[List[int]]:
        """For each slot the rows of its candidates, those nearest to its text first."""
        # The slots of a text share a search, except those that need a kept word.
        needs = [(number, self._constraints.needed(slot)) for number, slot in found]
        searches = list(dict.fromkeys(needs))
        count = self._limits.num_candidates + max(map(len, own_clauses), default=0)
        matches = self._pool.index.top(
            [texts[number] for number, _ in searches], count,
            lambda search: self._masks.mask(searches[search][1]))
        rows_of = {search: self._filled_up(match.rows.tolist(), search[1], count)
                   for search, match in zip(searches, matches)}
        return [self._usable(rows_of[need], slot, own_clauses[need[0]])
                for need, (_, slot) in zip(needs, found)]

    def _filled_up(self, rows: List[int], needed: Tuple[int, ...], count: int) -> List[int]:
        """If too few phrases share a word with the text, adds the first others of the pool."""
        if len(rows) < count:
            first = np.flatnonzero(self._masks.mask(needed))[:2 * count].tolist()
            rows = list(dict.fromkeys(rows + first))[:count]
        return rows

    def _usable(self, rows: Sequence[int], slot: Slot, own_clauses: Set[str]) -> List[int]:
        usable = []
        for row in rows:
            phrase = self.phrase(row)
            if _normalized(phrase) not in own_clauses and self._constraints.allow(slot, phrase):
                usable.append(row)
        return usable[:self._limits.num_candidates]

    def phrase(self, row: int) -> str:
        """A phrase of the pool."""
        return phrases.decode(self._pool.records, row)

    def example(self) -> pairs.Pairs:
        """A single pair, as an example of the model's input."""
        contexts = store.Records.of_chunk(pairs.encode_contexts([""], [""], self._encoding))
        row = np.flatnonzero(self._pool.is_usable)[:1]
        return self._pairs(contexts, np.zeros(1, np.int64), row)

    def _pairs(self, contexts: store.Records, numbers: np.ndarray,
               rows: np.ndarray) -> pairs.Pairs:
        return pairs.Pairs(contexts, self._pool.records, numbers, rows,
                           self._encoding.tokenizer, self._encoding.max_seq_length)

    def rewrite(self, texts: Sequence[str], predict: Predict) -> List[List[Rewrite]]:
        """The best rewrites of each text, at most `top_k`, most probable first."""
        found, tried = self.candidates(texts)
        rewrites: List[List[Rewrite]] = [[] for _ in texts]
        if not len(tried):
            return rewrites
        probabilities = data.KIND.scores(predict(tried))[:, 1]
        text_numbers = np.array([number for number, _ in found])[tried.slots]
        for pair in np.lexsort((-probabilities, text_numbers)):
            number, slot = found[tried.slots[pair]]
            if len(rewrites[number]) < self._limits.top_k:
                rewrites[number].append(Rewrite(
                    slot, self.phrase(tried.phrases[pair]), float(probabilities[pair])))
        return rewrites


def _normalized(phrase: str) -> str:
    """Equal for phrases that differ only in spaces and case."""
    return " ".join(phrase.split()).casefold()


def predict_with(predictor: Predictor, batch_size: int,
                 advance: Callable[[int], None]) -> Predict:
    """The model as a function for `Rewriter.rewrite`."""
    def predict(tried: pairs.Pairs) -> np.ndarray:
        return predictor.predict(tried.source(), batch_size, advance)["logits"]
    return predict

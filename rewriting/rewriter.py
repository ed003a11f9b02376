"""Rewrites texts: a search finds candidates in the pool, and the model scores them."""

import re
import unicodedata
from typing import Callable, List, NamedTuple, Optional, Pattern, Sequence, Set, Tuple

import numpy as np

from encoder.encoding import Encoding
from engine.data import store
from rewriting import data, pairs
from rewriting.pool import Pool
from rewriting.texts import LETTER, Slot, clauses, slots

Predict = Callable[[pairs.Pairs], np.ndarray]  # the model: pairs -> logits, [pairs, 2]


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


class Rewrite(NamedTuple):
    """A slot of a text with another phrase in it."""
    slot: Slot
    phrase: str
    probability: float  # that the phrase fits

    @property
    def text(self) -> str:
        """The text with the phrase in the slot."""
        return self.slot.filled(self.phrase)


class Rewriter(NamedTuple):
    """A trained scorer and a pool of phrases."""
    encoding: Encoding
    pool: Pool
    constraints: Constraints
    allowed: np.ndarray  # phrases of the pool that meet the constraints, bool [phrases]
    num_candidates: int  # phrases that the model scores for each clause
    top_k: int  # the most rewrites of a text

    def rewrite(self, texts: Sequence[str], predict: Predict) -> List[List[Rewrite]]:
        """The best rewrites of each text, at most `top_k`, most probable first."""
        found, tried = self.candidates(texts)
        rewrites: List[List[Rewrite]] = [[] for _ in texts]
        if not len(tried):
            return rewrites
        probabilities = data.KIND.scores(predict(tried))[:, 1]
        for pair in np.argsort(-probabilities, kind="stable"):
            number, slot = found[tried.slots[pair]]
            if len(rewrites[number]) < self.top_k:
                rewrites[number].append(Rewrite(
                    slot, self.pool.phrase(tried.phrases[pair]), float(probabilities[pair])))
        return rewrites

    def candidates(self, texts: Sequence[str]) -> Tuple[List[Tuple[int, Slot]], pairs.Pairs]:
        """The slots of some texts, each with its text's number, and the pairs to score."""
        found = [(number, slot) for number, text in enumerate(texts) for slot in slots(text)]
        tried = [(number, row) for number, rows in enumerate(self._search(texts, found))
                 for row in rows]
        numbers, rows = np.array(tried, np.int64).reshape(-1, 2).T
        contexts = store.Records.of_chunk(pairs.encode_contexts(
            [slot.before for _, slot in found], [slot.after for _, slot in found],
            self.encoding))
        return found, pairs.Pairs(contexts, self.pool.records, numbers, rows,
                                  self.encoding.tokenizer, self.encoding.max_seq_length)

    def _search(self, texts: Sequence[str], found: List[Tuple[int, Slot]]) -> List[List[int]]:
        """For each slot the rows of its candidates, those nearest to its text first."""
        # Repeating a clause of the text is not a rewrite.
        own_clauses = [set(map(_normalized, clauses(text))) for text in texts]
        count = self.num_candidates + max(map(len, own_clauses), default=0)
        searched = sorted({number for number, _ in found})
        matches = self.pool.index.top([texts[number] for number in searched], count,
                                       self.allowed)
        rows_of = dict(zip(searched, (self._filled_up(match.rows, count) for match in matches)))
        return [self._usable(rows_of[number], slot, own_clauses[number])
                for number, slot in found]

    def _filled_up(self, rows: np.ndarray, count: int) -> List[int]:
        """If too few phrases share a word with the text, adds the first others of the pool."""
        more = np.flatnonzero(self.allowed)[:2 * count] if len(rows) < count else []
        return list(dict.fromkeys([*rows.tolist(), *map(int, more)]))[:count]

    def _usable(self, rows: Sequence[int], slot: Slot, own_clauses: Set[str]) -> List[int]:
        phrases = [(row, self.pool.phrase(row)) for row in rows]
        return [row for row, phrase in phrases if _normalized(phrase) not in own_clauses
                and self.constraints.allow(slot, phrase)][:self.num_candidates]


def _normalized(phrase: str) -> str:
    """Equal for phrases that differ only in spaces and case."""
    return " ".join(phrase.split()).casefold()

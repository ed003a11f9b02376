"""BM25: a search for the phrases that share the most distinctive words with a text.

Robertson and Zaragoza 2009, with the idf of Lucene, which is never negative:
score = sum over the text's terms of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean)).
Terms are words and, in scripts without spaces, ideographs and pairs of neighbouring ones.
"""

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from engine.data.store import Chunk, Column, Records
from rewriting.texts import words

COLUMNS: Dict[str, Column] = {"terms": Column("int32", ragged=True),
                              "term_counts": Column("uint16", ragged=True)}
_K1, _B = 1.2, 0.75
# Terms are hashed: a vocabulary of all ideograph pairs could be as large as the pool.
_NUM_TERMS = 1 << 20
# These bound the memory.
_PHRASES_AT_A_TIME = 1 << 14
_QUERIES_AT_A_TIME = 64
_TERMS_AT_A_TIME = 1 << 20


class Matches(NamedTuple):
    """The phrases that match a query, best first."""
    rows: np.ndarray  # int64 [at most k]
    scores: np.ndarray  # float32, above 0


def encode(texts: Sequence[str]) -> Chunk:
    """The terms of some texts, with the columns of COLUMNS."""
    matrix = _count(texts)
    lengths = np.diff(matrix.indptr).astype(np.int64)
    return {"terms": (matrix.indices.astype(np.int32), lengths),
            "term_counts": (np.minimum(matrix.data, 2**16 - 1).astype(np.uint16), lengths)}


def _count(texts: Sequence[str]):
    """The number of times that each text has each term, sparse [n, _NUM_TERMS]."""
    # Imported here, because it takes a second.
    from sklearn.feature_extraction.text import HashingVectorizer
    return HashingVectorizer(analyzer=_terms, n_features=_NUM_TERMS, norm=None,
                             alternate_sign=False, dtype=np.float32).transform(texts)


def _terms(text: str) -> List[str]:
    singles = words(text.lower())
    # Two neighbouring words of one character are ideographs, unless both are ASCII.
    pairs = [first + second for first, second in zip(singles, singles[1:])
             if len(first) == len(second) == 1 and not (first + second).isascii()]
    return singles + pairs


class Index:
    """A search index over phrases.

    Args:
        phrases: records with COLUMNS; they may be memory-mapped and are read in chunks.
    """

    def __init__(self, phrases: Records):
        self._terms, self._counts = phrases.flat("terms"), phrases.flat("term_counts")
        self._offsets = phrases.offsets("terms")
        frequencies = np.zeros(_NUM_TERMS, np.int64)
        for start in range(0, len(self._terms), _TERMS_AT_A_TIME):
            frequencies += np.bincount(self._terms[start:start + _TERMS_AT_A_TIME],
                                       minlength=_NUM_TERMS)
        self._idf = np.log1p((len(phrases) - frequencies + 0.5) / (frequencies + 0.5)
                             ).astype(np.float32)
        self._mean_length = max(self._counts.sum(dtype=np.int64) / max(len(phrases), 1), 1e-9)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def top(self, queries: Sequence[str], k: int, is_allowed: np.ndarray) -> List[Matches]:
        """The k best phrases for each query, fewer if fewer match; of equal ones the first.

        Args:
            is_allowed: which phrases may be found, bool [phrases].
        """
        best: List[Matches] = []
        for first in range(0, len(queries), _QUERIES_AT_A_TIME):
            best += self._top_of_some(queries[first:first + _QUERIES_AT_A_TIME], k, is_allowed)
        return best

    def _top_of_some(self, queries: Sequence[str], k: int, is_allowed: np.ndarray) -> List[Matches]:
        weighted = self._weighted_queries(queries).T.tocsr()  # [terms, queries]
        best = [Matches(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
        for start, weights in self._shards():
            scores = (weights @ weighted).tocsc()  # [phrases, queries]
            for number in range(len(queries)):
                entries = slice(*scores.indptr[number:number + 2])
                rows = scores.indices[entries].astype(np.int64) + start
                allowed = is_allowed[rows]
                best[number] = _merge(best[number], rows[allowed],
                                      scores.data[entries][allowed], k)
        return best

    def _weighted_queries(self, queries: Sequence[str]):
        matrix = _count(queries)
        matrix.data *= self._idf[matrix.indices]
        return matrix

    def _shards(self) -> Iterator[Tuple[int, "scipy.sparse.csr_matrix"]]:  # noqa: F821
        """Chunks of the phrases: the number of the first one, and weights [phrases, terms]."""
        from scipy.sparse import csr_matrix
        for start in range(0, len(self), _PHRASES_AT_A_TIME):
            offsets = self._offsets[start:start + _PHRASES_AT_A_TIME + 1]
            values = slice(offsets[0], offsets[-1])
            counts = self._counts[values].astype(np.float32)
            starts = offsets - offsets[0]
            # (add.reduceat cannot sum an empty phrase at the end.)
            sums = np.concatenate([[0], np.cumsum(counts, dtype=np.float64)])
            lengths = sums[starts[1:]] - sums[starts[:-1]]
            damping = _K1 * (1 - _B + _B * lengths / self._mean_length)
            weights = counts * (_K1 + 1) / (counts + np.repeat(damping, np.diff(starts)))
            yield start, csr_matrix(
                (weights.astype(np.float32), np.asarray(self._terms[values]), starts),
                shape=(len(offsets) - 1, _NUM_TERMS))


def _merge(best: Matches, rows: np.ndarray, scores: np.ndarray, k: int) -> Matches:
    rows = np.concatenate([best.rows, rows])
    scores = np.concatenate([best.scores, scores])
    if len(scores) > k:  # drop the worst without sorting all
        kept = scores >= np.partition(scores, -k)[-k]
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:k]
    return Matches(rows[order], scores[order])

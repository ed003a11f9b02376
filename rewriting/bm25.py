"""BM25: a search for the phrases that share the most distinctive words with a text.

Robertson and Zaragoza 2009, with the idf of Lucene, which is never negative:
score = sum over the text's terms of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean)).
Terms are words and, in scripts without spaces, ideographs and pairs of neighbouring ones.
"""

from typing import Dict, List, Sequence

import numpy as np

from engine.data.store import Chunk, Column, Records
from rewriting.texts import words

COLUMNS: Dict[str, Column] = {"terms": Column("int32", ragged=True),
                              "term_counts": Column("uint16", ragged=True)}
_K1, _B = 1.2, 0.75
# Terms are hashed: a vocabulary of all ideograph pairs could be as large as the pool.
_NUM_TERMS = 1 << 20


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
    """A search index over phrases, in memory: eight bytes for each term of a phrase.

    Args:
        phrases: records with COLUMNS.
    """

    def __init__(self, phrases: Records):
        from scipy.sparse import csr_matrix
        counts, offsets = phrases.flat("term_counts").astype(np.float32), phrases.offsets("terms")
        matrix = csr_matrix((counts, phrases.flat("terms"), offsets), (len(phrases), _NUM_TERMS))
        lengths = np.asarray(matrix.sum(axis=1)).ravel()
        damping = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1e-9))
        matrix.data = counts * (_K1 + 1) / (
            counts + np.repeat(damping, np.diff(offsets)).astype(np.float32))
        self._weights = matrix.tocsc()  # [phrases, terms]
        frequencies = np.diff(self._weights.indptr)
        self._idf = np.log1p((len(phrases) - frequencies + 0.5) / (frequencies + 0.5))

    def scores(self, query: str) -> np.ndarray:
        """The score of each phrase for a text, float32 [phrases]; 0 where they share no term."""
        scores, terms = np.zeros(self._weights.shape[0], np.float32), _count([query])
        for term, count in zip(terms.indices, terms.data):
            having = slice(*self._weights.indptr[term:term + 2])
            scores[self._weights.indices[having]] += (
                count * self._idf[term] * self._weights.data[having])
        return scores

    def top(self, query: str, k: int, is_allowed: np.ndarray) -> np.ndarray:
        """The rows of the k best phrases for a text, best first, of equal ones the first.

        Phrases that share no term with the text are not among them.

        Args:
            is_allowed: which phrases may be taken, bool [phrases].
        """
        scores = self.scores(query)
        rows = np.flatnonzero((scores > 0) & is_allowed)
        if len(rows) > k:  # drop the worst without sorting all
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        return rows[np.argsort(-scores[rows], kind="stable")][:k]

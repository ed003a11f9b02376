"""Exact nearest-neighbour search: the documents with the largest dot products for each query.

NumPy multiplies blocks, in a third of TensorFlow's time.
"""

from typing import Tuple

import numpy as np

_QUERIES = 1024  # of a matrix product
_DOCUMENTS = 16384  # of a matrix product: 64 MB of scores, and 25 MB of vectors with 384 values
_PAIRS = 4096  # whose products are computed one by one at a time
# More than a score of a matrix product, of vectors of length 1, differs from the pair's own.
_ROUNDING = 1e-5

Ranking = Tuple[np.ndarray, np.ndarray]  # scores and indices of documents


def nearest(queries: np.ndarray, documents: np.ndarray, k: int) -> Ranking:
    """The k documents with the largest dot products for each query, in blocks, in flat memory.

    Args:
        queries: float32 [q, D].
        documents: float32 [m, D]; may be mapped from a file.
        k: at least 1.

    Returns:
        Scores, float32, and indices of documents, int64, each [q, min(k, m)], the best first; of
        equal scores the earlier document first.
    """
    k = min(k, len(documents))
    scores, indices = zip(*(_of_block(queries[first:first + _QUERIES], documents, k)
                            for first in range(0, max(1, len(queries)), _QUERIES)))
    return np.concatenate(scores), np.concatenate(indices)


def _of_block(queries: np.ndarray, documents: np.ndarray, k: int) -> Ranking:
    count = len(queries)
    scores, indices = np.empty((count, 0), np.float32), np.empty((count, 0), np.int64)
    least = np.full((count, 1), -np.inf, np.float32)
    first, size = 0, k
    while first < len(documents):
        block = documents[first:first + size]
        # A document must beat the worst of the best k so far. Each block is twice as large as the one
        # before: unless the documents are in an odd order, fewer than k of a block do.
        # A score that is not a number (a damaged model or index) comes last.
        rows, columns = np.nonzero(~(queries @ block.T <= least - _ROUNDING))
        merged_rows = np.concatenate([np.repeat(np.arange(count), scores.shape[1]), rows])
        merged = np.concatenate([scores.ravel(), _products(queries, block, rows, columns)])
        merged_indices = np.concatenate([indices.ravel(), first + columns])
        order = np.lexsort((merged_indices, -merged, merged_rows))
        begins = np.searchsorted(merged_rows[order], np.arange(count))
        best = order[begins[:, np.newaxis] + np.arange(min(k, first + len(block)))]
        scores, indices = merged[best], merged_indices[best]
        least = scores[:, -1:] if scores.shape[1] == k else least
        first, size = first + size, min(2 * size, _DOCUMENTS)
    return scores, indices


def _products(queries: np.ndarray, documents: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The dot product of each pair, the same wherever the pair stands: a matrix product rounds by place and shape."""
    products = np.empty(len(rows), np.float32)
    for first in range(0, len(rows), _PAIRS):
        pairs = slice(first, first + _PAIRS)
        products[pairs] = (queries[rows[pairs]] * documents[columns[pairs]]).sum(axis=1)
    return products

"""Exact nearest-neighbour search: the documents with the largest dot products for each query.

On the CPU NumPy multiplies, in a third of TensorFlow's time. Cards multiply large batches of queries. For a
small batch NumPy is used there, too: copying the documents to a card would take longer.
"""

import contextlib
from typing import Callable, Iterator, Optional, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

from engine.devices import runtime
from engine.devices.devices import Devices
from similarity.rows import Rows

_QUERIES = 1024  # of a matrix product
_DOCUMENTS = 16384  # of a matrix product: 64 MB of scores, and 25 MB of vectors with 384 values
# An estimate: a component of a document takes 0.5 ns to a card, and 0.002 ns a query on 16 cores.
_LEAST_FOR_CARDS = 256

Vectors = Union[np.ndarray, Rows]  # [n, D]
Found = Tuple[np.ndarray, np.ndarray]  # scores and indices of documents
Nearest = Callable[[Vectors, Vectors, int], Found]


@contextlib.contextmanager
def nearest_on(devices: Devices) -> Iterator[Nearest]:
    """Yields `nearest`; its products are computed on all cards of a run, if it has some."""
    if devices.kind == "CPU":
        yield nearest
        return
    with Products(devices) as products:
        yield lambda queries, documents, k: nearest(
            queries, documents, k, products if len(queries) >= _LEAST_FOR_CARDS else None)


class Products:
    """The best of some documents for each query, found on all replicas. Use it as a context manager."""

    def __init__(self, devices: Devices):
        with tf.Graph().as_default() as graph:
            self._queries = tf.placeholder(tf.float32, [None, None])
            self._k = tf.placeholder(tf.int32, [])
            self._documents = [tf.placeholder(tf.float32, [None, None]) for _ in devices.names]
            self._best = [_best_on(name, self._queries, documents, self._k)
                          for name, documents in zip(devices.names, self._documents)]
        self._session = tf.Session(graph=graph, config=devices.session_config)

    def __enter__(self) -> "Products":
        return self

    def __exit__(self, *exception) -> None:
        self._session.close()

    @property
    def num_replicas(self) -> int:
        """The number of blocks of documents that are compared at a time."""
        return len(self._documents)

    def best(self, queries: np.ndarray, documents: np.ndarray, k: int) -> Found:
        """The k best documents of each replica's share, [q, up to num_replicas * k] each."""
        shares = np.array_split(documents, self.num_replicas)
        with runtime.without_tensor_float_32():
            found = self._session.run(self._best, {
                self._queries: queries, self._k: k, **dict(zip(self._documents, shares))})
        starts = np.cumsum([0, *map(len, shares)])
        scores = np.concatenate([share.values for share in found], axis=1)
        scores[np.isneginf(scores)] = np.nan
        return scores, np.concatenate(
            [share.indices + start for share, start in zip(found, starts)], axis=1)


def _best_on(device: str, queries: tf.Tensor, documents: tf.Tensor, k: tf.Tensor):
    """The k largest scores of each query and their documents; what is not a number is -inf."""
    with tf.device(device):
        scores = tf.matmul(queries, documents, transpose_b=True)
        scores = tf.where(tf.is_nan(scores), tf.fill(tf.shape(scores), -np.inf), scores)
        return tf.math.top_k(scores, tf.minimum(k, tf.shape(documents)[0]))


def nearest(queries: Vectors, documents: Vectors, k: int,
            products: Optional[Products] = None) -> Found:
    """The k documents with the largest dot products for each query, in blocks, in flat memory.

    Args:
        queries: float32 [q, D].
        documents: float32 [m, D]; may be mapped from a file.
        k: at least 1.
        products: computes them in the place of NumPy.

    Returns:
        Scores, float32, and indices of documents, int64, each [q, min(k, m)], the best first; of
        equal scores the earlier document first.
    """
    k = min(k, len(documents))
    found = [_of_block(queries[first:first + _QUERIES], documents, k, products)
             for first in range(0, len(queries), _QUERIES)]
    if not found:
        return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    scores, indices = zip(*found)
    return np.concatenate(scores), np.concatenate(indices)


def _of_block(queries: np.ndarray, documents: Vectors, k: int,
              products: Optional[Products]) -> Found:
    count = len(queries)
    scores, indices = np.empty((count, 0), np.float32), np.empty((count, 0), np.int64)
    least = np.full((count, 1), -np.inf, np.float32)
    largest = _DOCUMENTS * (products.num_replicas if products else 1)
    first, size = 0, largest if products else k
    while first < len(documents):
        block = documents[first:first + size]
        of_block, columns = (products.best(queries, block, k) if products
                             else (queries @ block.T, None))
        # Only what is better than the last of the best k can be one of them. Blocks of twice the
        # size of the one before bring less than k such documents each, in any but an odd order.
        # What is not a number, in a damaged model or index, comes last.
        rows, places = np.nonzero(~(of_block <= least))
        merged_rows = np.concatenate([np.repeat(np.arange(count), scores.shape[1]), rows])
        merged = np.concatenate([scores.ravel(), of_block[rows, places]])
        found = places if columns is None else columns[rows, places]
        merged_indices = np.concatenate([indices.ravel(), first + found])
        order = np.lexsort((merged_indices, -merged, merged_rows))
        begins = np.searchsorted(merged_rows[order], np.arange(count))
        best = order[begins[:, np.newaxis] + np.arange(min(k, first + len(block)))]
        scores, indices = merged[best], merged_indices[best]
        least = scores[:, -1:] if scores.shape[1] == k else least
        first, size = first + size, min(2 * size, largest)
    return scores, indices

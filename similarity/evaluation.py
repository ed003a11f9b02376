"""How good vectors are: their similarities beside labels of pairs, and what a search finds with them."""

import math
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np

from runs.capability import Job, Measured, Predict
from similarity.data import TextSet
from similarity.nearest import nearest

RECALL_AT = (1, 5, 10)
DEPTH = 10  # of the ranks that count
_BLOCK = 4096  # pairs that are compared at a time
_MAX_WORST = 10  # pairs of a kind, for the report


class Judged(NamedTuple):
    """Two texts, by their numbers in `TextSet.source`."""
    first: int
    second: int
    label: Union[str, float]
    similarity: float


class Shown(NamedTuple):
    """What the report shows."""
    texts: TextSet
    similarities: Mapping[str, np.ndarray]  # of the pairs of each kind
    worst: List[Judged]  # those farthest off first
    recall: Sequence[float] = ()  # among the first 1, 2, ... documents


def measure(job: Job, texts: TextSet, predict: Predict) -> Measured:
    """See `Capability.measure`; with --matryoshka each size is measured."""
    vectors = predict(texts.source())["vectors"]
    results, shown = _measured(texts, vectors)
    for size in job.model.similarity.matryoshka:
        if size != vectors.shape[1]:
            of_size, _ = _measured(texts, shortened(vectors, size))
            results.update({f"{name}_of_{size}": value for name, value in of_size.items()})
    return Measured(results, {"num_examples": texts.num_examples, "num_texts": len(texts)},
                    shown=shown)


def shortened(vectors: np.ndarray, size: int) -> np.ndarray:
    """The first components of vectors [..., D], as vectors [..., size] of norm 1."""
    if size == vectors.shape[-1]:
        return vectors
    norms = np.linalg.norm(vectors[..., :size], axis=-1, keepdims=True)
    return vectors[..., :size] / np.maximum(norms, 1e-12)


def similarities(vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The cosines of each anchor and its example's other texts, [n, s - 1]; numbers: [n, s]."""
    cosines = np.empty((len(numbers), numbers.shape[1] - 1), np.float32)
    for first in range(0, len(numbers), _BLOCK):
        block = numbers[first:first + _BLOCK]
        cosines[first:first + _BLOCK] = np.einsum(
            "nd,nsd->ns", vectors[block[:, 0]], vectors[block[:, 1:]])
    return cosines


def _measured(texts: TextSet, vectors: np.ndarray) -> Tuple[Dict[str, float], Shown]:
    if texts.file.has_scores:
        return _of_scores(texts, similarities(vectors, texts.numbers)[:, 0])
    return _of_retrieval(texts, vectors)


def _of_scores(texts: TextSet, cosines: np.ndarray) -> Tuple[Dict[str, float], Shown]:
    scores = texts.scores
    is_similar = scores > scores.max() / 2
    return pair_measures(cosines, scores), Shown(
        texts, {"high scores": cosines[is_similar], "low scores": cosines[~is_similar]},
        _worst(texts.numbers, scores, cosines, is_similar))


def _of_retrieval(texts: TextSet, vectors: np.ndarray) -> Tuple[Dict[str, float], Shown]:
    """Looks for each anchor's positives among all distinct texts of the other columns but the anchor itself."""
    numbers = texts.numbers
    queries, first, of_queries = np.unique(numbers[:, 0], return_index=True, return_inverse=True)
    documents, of_documents = np.unique(numbers[:, 1:], return_inverse=True)
    positives = of_documents.reshape(len(numbers), -1)[:, 0]
    texts_of_queries = texts.plain_anchors[first]
    place = np.minimum(np.searchsorted(documents, texts_of_queries), len(documents) - 1)
    retrieval = retrieve(vectors[queries], vectors[documents], np.stack([of_queries, positives], axis=1),
                         np.where(documents[place] == texts_of_queries, place, -1))
    own = similarities(vectors, numbers[:, :2])[:, 0]
    # Each query's best document that is not relevant, of those that have one.
    with_miss, rank = np.flatnonzero(~retrieval.hits.all(axis=1)), retrieval.hits.argmin(axis=1)
    nearest_negatives = (with_miss, rank[with_miss])
    negatives = retrieval.scores[nearest_negatives]
    misses = np.stack(
        [queries[with_miss], documents[retrieval.documents[nearest_negatives]]], axis=1)
    others = np.roll(positives, len(positives) // 2)  # half the file away
    other = others != positives
    apart = np.stack([numbers[other, 0], documents[others[other]]], axis=1)
    return retrieval.measures(), Shown(
        texts, {"positives": own, "nearest negatives": negatives,
                "texts of different lines": similarities(vectors, apart)[:, 0]},
        _worst(np.concatenate([numbers[:, :2], misses]),
               ["positive"] * len(own) + ["negative"] * len(misses),
               np.concatenate([own, negatives]), np.arange(len(own) + len(misses)) < len(own)),
        [retrieval.recall_at(k + 1) for k in range(retrieval.hits.shape[1])])


def _worst(pairs: np.ndarray, labels: Sequence[Union[str, float]], cosines: np.ndarray,
           is_similar: np.ndarray) -> List[Judged]:
    """The least similar of the pairs [n, 2] that should be, and the most similar of the others."""
    order = np.argsort(np.where(is_similar, cosines - 1, -cosines), kind="stable")
    chosen = np.sort(np.concatenate([np.flatnonzero(are_of_kind[order])[:_MAX_WORST]
                                     for are_of_kind in (is_similar, ~is_similar)]))
    return [Judged(*pairs[index].tolist(), labels[index], float(cosines[index]))
            for index in order[chosen]]


def pair_measures(similarities: np.ndarray, labels: np.ndarray) -> Dict[str, float]:
    """The correlations of similarities with labels; for labels 0 and 1 also how they are told apart.

    Args:
        similarities: [n].
        labels: [n], scores, or 0 and 1.

    Returns:
        spearman and pearson, NaN if all labels or all similarities are equal. For labels 0 and 1
        also average_precision, and best_f1 with best_f1_threshold, the largest similarity with that
        F1 from which on pairs count as similar; NaN without a pair with the label 1. All are NaN
        if a similarity is not finite.
    """
    import scipy.stats  # these take a second to import
    import sklearn.metrics
    labels, similarities = labels.astype(np.float64), similarities.astype(np.float64)
    are_finite = np.isfinite(similarities).all()
    if not are_finite or np.ptp(labels) == 0 or np.ptp(similarities) == 0:
        measures = {"spearman": math.nan, "pearson": math.nan}
    else:
        measures = {"spearman": float(scipy.stats.spearmanr(similarities, labels)[0]),
                    "pearson": float(scipy.stats.pearsonr(similarities, labels)[0])}
    if not np.isin(labels, (0, 1)).all():
        return measures
    if not are_finite or not labels.any():
        return {**measures, **dict.fromkeys(
            ("average_precision", "best_f1", "best_f1_threshold"), math.nan)}
    precision, recall, thresholds = sklearn.metrics.precision_recall_curve(labels, similarities)
    # Without the last point, which is at no similarity. Where both are 0, so is F1.
    f1 = (2 * precision * recall / np.maximum(precision + recall, 1e-300))[:-1]
    best = np.flatnonzero(f1 == f1.max())[-1]
    return {**measures,
            "average_precision": float(sklearn.metrics.average_precision_score(
                labels, similarities)),
            "best_f1": float(f1[best]), "best_f1_threshold": float(thresholds[best])}


class Retrieval(NamedTuple):
    """What q queries find among m documents. Made by `retrieve`."""
    scores: np.ndarray  # float32 [q, k], the best first
    documents: np.ndarray  # their indices, [q, k]
    hits: np.ndarray  # bool [q, k]: whether it is relevant
    counts: np.ndarray  # [q]: of relevant documents

    def recall_at(self, k: int) -> float:
        """The share of a query's relevant documents among the first k, the mean over the queries."""
        return float(np.mean(self.hits[:, :k].sum(axis=1) / self.counts))

    def measures(self) -> Dict[str, float]:
        """How well relevant documents are found, the mean over the queries.

        Returns:
            recall_at_k. mrr_at_10: 1 over the rank of the first relevant document, 0 if it is not
            among the first 10. ndcg_at_10: the sum of 1 / log2(rank + 1) over the relevant
            documents among the first 10, over its largest possible value (Järvelin and
            Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002).
        """
        hits = self.hits[:, :DEPTH]
        ranks = np.arange(1, hits.shape[1] + 1)
        ideal = np.cumsum(1 / np.log2(np.arange(1, DEPTH + 1) + 1))
        gains = (hits / np.log2(ranks + 1)).sum(axis=1)
        return {**{f"recall_at_{k}": self.recall_at(k) for k in RECALL_AT},
                f"mrr_at_{DEPTH}": float(np.mean((hits / ranks).max(axis=1))),
                f"ndcg_at_{DEPTH}": float(np.mean(
                    gains / ideal[np.minimum(self.counts, DEPTH) - 1]))}


def retrieve(queries: np.ndarray, documents: np.ndarray, relevant: np.ndarray,
             same: Union[np.ndarray, int] = -1) -> Retrieval:
    """Compares queries with all documents, in blocks.

    Of documents with the same score the earlier one is ranked first.

    Args:
        queries: float32 [q, D], of length 1, as the documents are; at least one.
        documents: float32 [m, D].
        relevant: the indices of queries and their relevant documents, [n, 2]; each query has one.
        same: the index of the document that is the query's own text, [q], which ranks last unless it is relevant; -1:
            there is none.
    """
    scores, indices = nearest(queries, documents, DEPTH + 1)
    pairs = np.unique(relevant @ [len(documents), 1])
    hits = np.isin(np.arange(len(queries))[:, np.newaxis] * len(documents) + indices, pairs)
    is_same = (indices == np.reshape(same, (-1, 1))) & ~hits
    ranks = np.argsort(is_same, axis=1, kind="stable")[:, :DEPTH]
    found = (np.take_along_axis(each, ranks, axis=1) for each in (scores, indices, hits))
    return Retrieval(*found, np.bincount(pairs // len(documents)))

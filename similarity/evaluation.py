"""How good vectors are: their similarities beside labels of pairs, and what a search finds with them."""

import math
from typing import Dict, Sequence

import numpy as np

from similarity.nearest import nearest

RECALL_AT = (1, 5, 10)
_DEPTH = 10  # of the reciprocal rank and the cumulative gain


def pair_measures(similarities: np.ndarray, labels: np.ndarray) -> Dict[str, float]:
    """The correlations of similarities with labels; for labels 0 and 1 also how they are told apart.

    Args:
        similarities: [n].
        labels: [n], scores, or 0 and 1.

    Returns:
        spearman and pearson, NaN if all labels or all similarities are equal. For labels 0 and 1
        also average_precision, and best_f1 with best_f1_threshold, the largest similarity with that
        F1 from which on pairs count as similar; NaN without a pair with the label 1.
    """
    import scipy.stats  # these take a second to import
    import sklearn.metrics
    labels, similarities = labels.astype(np.float64), similarities.astype(np.float64)
    if not len(labels) or np.ptp(labels) == 0 or np.ptp(similarities) == 0:
        measures = {"spearman": math.nan, "pearson": math.nan}
    else:
        measures = {"spearman": float(scipy.stats.spearmanr(similarities, labels)[0]),
                    "pearson": float(scipy.stats.pearsonr(similarities, labels)[0])}
    if not np.isin(labels, (0, 1)).all():
        return measures
    if not labels.any():
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


def retrieval_measures(queries: np.ndarray, documents: np.ndarray,
                       relevant: Sequence[np.ndarray]) -> Dict[str, float]:
    """How well queries find their relevant documents among all, the mean over the queries.

    All documents are compared, in blocks. Of documents with the same score the earlier one is
    ranked first.

    Args:
        queries: float32 [q, D], of length 1, as the documents are; at least one.
        documents: float32 [m, D].
        relevant: of each query the indices of its relevant documents, each once, at least one.

    Returns:
        recall_at_k: the share of the relevant documents that are among the first k. mrr_at_10: 1
        over the rank of the first relevant document, 0 if it is not among the first 10.
        ndcg_at_10: the sum of 1 / log2(rank + 1) over the relevant documents among the first 10,
        over its largest possible value (Järvelin and Kekäläinen, "Cumulated Gain-Based
        Evaluation of IR Techniques", 2002).
    """
    _, found = nearest(queries, documents, max(_DEPTH, *RECALL_AT))
    hits = np.stack([np.isin(row, some) for row, some in zip(found, relevant)])
    counts = np.array([len(some) for some in relevant])
    measures = {f"recall_at_{k}": np.mean(hits[:, :k].sum(axis=1) / counts) for k in RECALL_AT}
    hits = hits[:, :_DEPTH]
    ranks = np.arange(1, hits.shape[1] + 1)
    measures[f"mrr_at_{_DEPTH}"] = np.mean((hits / ranks).max(axis=1))
    ideal = np.cumsum(1 / np.log2(np.arange(1, _DEPTH + 1) + 1))
    measures[f"ndcg_at_{_DEPTH}"] = np.mean(
        (hits / np.log2(ranks + 1)).sum(axis=1) / ideal[np.minimum(counts, _DEPTH) - 1])
    return {name: float(value) for name, value in measures.items()}

"""How well scores rank a slot's own phrase among the others that are tried in it.

Phrases with equal scores stand in any order, each as likely: every figure is the mean over
these orders, so that a scorer that knows nothing gets what chance gives.
"""

from typing import Dict

import numpy as np

from rewriting.sets import QuestionSet

RECALLED = (1, 5, 10)
METRICS = ("mean_reciprocal_rank", "pair_accuracy",
           *(f"recall_at_{count}" for count in RECALLED))


def evaluate(questions: QuestionSet, scores: np.ndarray) -> Dict[str, float]:
    """METRICS over the slots that have a phrase that fits and others; NaN where there are none.

    `pair_accuracy` is the share of the other phrases that the fitting one stands before.

    Args:
        scores: of each pair, the better the higher, [pairs].
    """
    starts, counts = questions.starts, questions.num_phrases
    right = np.repeat(scores[starts], counts)
    is_ranked = questions.is_ranked
    higher = np.add.reduceat((scores > right).astype(np.int64), starts)[is_ranked]
    equal = np.add.reduceat((scores == right).astype(np.int64), starts)[is_ranked]  # itself too
    others = counts[is_ranked] - 1
    if not len(others):
        return dict.fromkeys(METRICS, float("nan"))
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, counts.max() + 1))])
    results = {
        "mean_reciprocal_rank": np.mean((harmonic[higher + equal] - harmonic[higher]) / equal),
        "pair_accuracy": np.sum(others - higher - (equal - 1) / 2) / np.sum(others)}
    for count in RECALLED:
        results[f"recall_at_{count}"] = np.mean(np.clip(count - higher, 0, equal) / equal)
    return {name: float(value) for name, value in results.items()}


def chance(questions: QuestionSet) -> Dict[str, float]:
    """What scores that know nothing get."""
    return evaluate(questions, np.zeros(len(questions.pairs)))

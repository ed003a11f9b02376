"""How well scores rank a slot's own phrase among the others that are tried in it.

Phrases with equal scores stand in any order, each as likely: every figure is the mean over
these orders, so that scores that know nothing get what chance gives.
"""

from typing import Dict

import numpy as np

RECALLED = (1, 5, 10)
METRICS = ("mean_reciprocal_rank", "pair_accuracy",
           *(f"recall_at_{count}" for count in RECALLED))


def is_ranked(num_phrases: np.ndarray, num_fitting: np.ndarray) -> np.ndarray:
    """Which slots have a phrase that fits and another to prefer it to, bool [slots].

    Args:
        num_phrases: of each slot, [slots].
        num_fitting: of each slot, 1 where its first phrase fits, or 0, [slots].
    """
    return (num_fitting > 0) & (num_phrases > 1)


def evaluate(num_phrases: np.ndarray, num_fitting: np.ndarray,
             scores: np.ndarray) -> Dict[str, float]:
    """METRICS over the slots that can be ranked; NaN where there are none.

    `pair_accuracy` is the share of the other phrases that the fitting one stands before.

    Args:
        num_phrases, num_fitting: see `is_ranked`.
        scores: of each phrase of each slot in turn, the better the higher, [phrases].
    """
    starts = np.cumsum(num_phrases) - num_phrases
    own = np.repeat(scores[starts], num_phrases)
    ranked = is_ranked(num_phrases, num_fitting)
    if not ranked.any():
        return dict.fromkeys(METRICS, float("nan"))
    higher = np.add.reduceat((scores > own).astype(np.int64), starts)[ranked]
    equal = np.add.reduceat((scores == own).astype(np.int64), starts)[ranked]  # itself too
    others = num_phrases[ranked] - 1
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, num_phrases.max() + 1))])
    results = {
        "mean_reciprocal_rank": np.mean((harmonic[higher + equal] - harmonic[higher]) / equal),
        "pair_accuracy": np.sum(others - higher - (equal - 1) / 2) / np.sum(others)}
    for count in RECALLED:
        results[f"recall_at_{count}"] = np.mean(np.clip(count - higher, 0, equal) / equal)
    return {name: float(value) for name, value in results.items()}


def chance(num_phrases: np.ndarray, num_fitting: np.ndarray) -> Dict[str, float]:
    """What scores that know nothing get."""
    return evaluate(num_phrases, num_fitting, np.zeros(np.sum(num_phrases)))

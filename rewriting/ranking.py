"""How well scores rank a slot's own phrase among its other candidates.

Phrases with equal scores are in random order: every metric is the mean over all these orders,
so that constant scores get exactly the result of chance.
"""

from typing import Dict

import numpy as np

RECALLED = (1, 5, 10)
METRICS = ("mean_reciprocal_rank", "pair_accuracy",
           *(f"recall_at_{count}" for count in RECALLED))


def is_ranked(num_phrases: np.ndarray, num_fitting: np.ndarray) -> np.ndarray:
    """Which slots have a phrase that fits and at least one other phrase, bool [slots].

    Args:
        num_phrases: of each slot, [slots].
        num_fitting: 1 if the first phrase of a slot fits, otherwise 0, [slots].
    """
    return (num_fitting > 0) & (num_phrases > 1)


def evaluate(num_phrases: np.ndarray, num_fitting: np.ndarray,
             scores: np.ndarray) -> Dict[str, float]:
    """METRICS over the slots that can be ranked; NaN if there are none.

    `pair_accuracy` is the share of the other phrases that rank below the fitting one.

    Args:
        num_phrases, num_fitting: see `is_ranked`.
        scores: of each phrase, slot after slot; higher is better, [phrases].
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
    """The metrics of random scores."""
    return evaluate(num_phrases, num_fitting, np.zeros(np.sum(num_phrases)))

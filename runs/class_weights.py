"""Weights of the classes in the loss, for training sets in which some are rare.

The loss is the mean over the weights of the global batch: the sum of weight x loss over all its
examples, divided by the sum of their weights. So N replicas with B examples each make the same step
as one with N * B.
"""

import dataclasses
import math
from typing import Callable, Dict, Optional

import numpy as np

from engine import log
from engine.data.batches import Features, Source
from engine.errors import UserError
from engine.settings import setting
from runs.label_types import Kind

BALANCED = "balanced"

# (indices of examples) -> their weights: [b], or [b, classes] if an example can have several.
WeightsOf = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class ClassSettings:
    """How unequal classes count."""
    topic = "Training"
    class_weights: Optional[str] = setting(
        None, "Weights of the labels in the training's loss: balanced, in inverse proportion to "
        "their number in the training set; or label=weight,label=weight,..., the others 1. If a "
        "text may have several labels, a weight is that of the texts with the label, and those "
        "without it have 1.")


def parse(text: Optional[str], kind: Kind) -> Dict[str, float]:
    """The weights that --class_weights gives, by label; empty for `balanced` and None.

    Raises:
        UserError: the task has no such label, or a weight is not a number greater than 0.
    """
    if text is None:
        return {}
    if not kind.labels:
        raise UserError(f"--class_weights={text}: the task's labels are numbers, not classes")
    if text == BALANCED:
        return {}
    weights: Dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = part.strip().rpartition("=")
        if label not in kind.labels:
            raise UserError(f"--class_weights={text}: {part!r} is not label=weight, with one of "
                            f"the labels {', '.join(kind.labels[:20])}")
        if label in weights:
            raise UserError(f"--class_weights={text}: the label {label!r} is there twice")
        weights[label] = _number(weight, text)
    return weights


def _number(weight: str, text: str) -> float:
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e6:  # nor NaN; products with a loss must fit into float32
        raise UserError(f"--class_weights={text}: {weight!r} is not a number from 0.000001 to "
                        "1,000,000")
    return value


def of_classes(text: str, kind: Kind, labels: np.ndarray) -> np.ndarray:
    """The weight of each class, float32 [classes]; says them.

    Balanced are n / (classes x n_c), as in scikit-learn, where n_c of n examples have class c;
    if an example can have several classes, (n - n_c) / n_c, so that those with and without class
    c have the same weight. A class without examples has 1.

    Args:
        labels: of all n training examples, [n] or [n, classes].
    """
    given = parse(text, kind)
    weights = np.array([given.get(label, 1.0) for label in kind.labels])
    if text == BALANCED:
        counts = (labels.sum(axis=0) if labels.ndim == 2
                  else np.bincount(labels, minlength=len(kind.labels)))
        balanced = (len(labels) - counts if labels.ndim == 2 else len(labels) / len(kind.labels))
        weights = np.where((counts > 0) & (balanced > 0), balanced / np.maximum(counts, 1), 1.0)
    log.info("Class weights: " + ", ".join(
        f"{label} {weight:.4g}" for label, weight in zip(kind.labels[:20], weights)))
    return weights.astype(np.float32)


def of_labels(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The weights of examples, of the shape of their labels, [b] or [b, classes].

    Args:
        weights: of the classes, [classes].
    """
    return np.where(labels > 0, weights, np.float32(1)) if labels.ndim == 2 else weights[labels]


def weighted(source: Source, weights_of: WeightsOf) -> Source:
    """The source with "label_weights": weights, divided by the mean of those of the whole step."""
    def fetch_for_step(indices: np.ndarray, epochs: np.ndarray, length: int) -> Features:
        del epochs
        weights = weights_of(indices)
        mean = weights.mean(dtype=np.float64).astype(np.float32)
        return {**source.fetch(indices, length), "label_weights": weights / mean}

    return source._replace(fetch_for_step=fetch_for_step)

"""The report's sections on classification: scores of the classes, confusions, the worst mistakes."""

from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from runs.capability import Measured
from runs.label_types import Kind
from runs.report_page import Confusion, Mistake, class_scores
from tasks.data import read_examples
from tasks.model_folder import Classification

_MAX_MISTAKES = 20
_MAX_CHARACTERS = 1000  # of a text on the page


class Shown(NamedTuple):
    """What a model predicts for a set, and its mistakes."""
    labels: np.ndarray  # [n] or [n, classes], see label_types
    predicted: np.ndarray  # like `labels`
    errors: np.ndarray  # [n], see `Kind.errors`
    per_class: List[Dict[str, Any]]
    confusion_matrix: List[List[int]]


def page(classification: Classification, measured: Measured) -> Dict[str, Any]:
    """The parts of the report on a dev set."""
    shown = measured.shown
    confusion = shown.confusion_matrix and Confusion(
        classification.kind.labels, np.array(shown.confusion_matrix))
    return {"confusion": confusion or None, "mistakes": _mistakes(classification, shown),
            "scores": class_scores([list(row.values()) for row in shown.per_class])}


def _mistakes(classification: Classification, shown: Shown) -> Sequence[Mistake]:
    """The worst mistakes. Their texts are read again, because the store has only token ids."""
    kind, task, errors = classification.kind, classification.task, shown.errors
    worst: List[int] = [int(index) for index in np.argsort(-errors, kind="stable")[:_MAX_MISTAKES]
                        if errors[index] > 0]
    wanted, found = set(worst), {}
    if wanted:
        for index, example in enumerate(read_examples(task, task.dev, classification.data_dir)):
            if index in wanted:
                found[index] = example
            if len(found) == len(wanted):
                break
    return [Mistake(
        text_a=found[index].text_a[:_MAX_CHARACTERS],
        text_b=found[index].text_b and found[index].text_b[:_MAX_CHARACTERS],
        label=_shown(kind, shown.labels[index]),
        predicted=_shown(kind, shown.predicted[index]),
        probability=float(errors[index]) if kind.labels else None) for index in worst]


def _shown(kind: Kind, label: Any) -> Any:
    return kind.format_label(label) or "none" if kind.labels else float(label)

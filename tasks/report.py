"""The report's sections on classification: scores of the classes, confusions, the worst mistakes."""

from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from encoder.label_types import Kind
from runs.capability import Measured
from runs.report_page import Cell, MarkedTexts, Part, Section, Table, class_scores, items_at, number
from tasks.model_folder import Classification

_MAX_MISTAKES = 20
_MAX_CHARACTERS = 1000  # of a text on the page
_MAX_NUMBERED_CLASSES = 20  # with more, the cells of a confusion matrix are too small for numbers
_MAX_LEVEL = 4  # characters of a label above a column; longer ones stand upright


class Shown(NamedTuple):
    """What a model predicts for a set, and its mistakes."""
    kind: Kind  # of the labels
    labels: np.ndarray  # [n] or [n, classes], see label_types
    predicted: np.ndarray  # like `labels`
    errors: np.ndarray  # [n], see `Kind.errors`


def page(classification: Classification, measured: Measured) -> List[Section]:
    """The sections on a dev set."""
    labels, details = measured.shown.kind.labels, measured.details
    note = ("Wrong predictions, the most confident first, with their probability." if labels
            else "The farthest off first.")
    return [class_scores(row.values() for row in details["per_class"]),
            confusion(labels, details["confusion_matrix"]),
            MarkedTexts("Mistakes", note, _mistakes(classification, measured.shown))]


def confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    """The confusion matrix, of counts [true label][predicted label]; no rows: it is not shown."""
    is_numbered = len(labels) <= _MAX_NUMBERED_CLASSES
    is_upright = max(map(len, labels), default=0) > _MAX_LEVEL

    def cell(true: int, predicted: int) -> Any:
        count, total = counts[true][predicted], sum(counts[true])
        if not count:
            return ""
        share = count / total if true == predicted else (count / total) ** 0.5
        look = ("right" if true == predicted else "wrong") + " strong" * (share > 0.55)
        return Cell(f"{count:,}" * is_numbered, look, share,
                    f"{labels[true]} taken for {labels[predicted]}: {count:,}")

    return Table(
        "Confusion matrix", "A row for each true label, a column for each predicted one"
        f"{'' if is_numbered else ', in the same order'}. Blue is right, orange is wrong; the "
        "deeper, the larger the share of the row.",
        ["", *labels] if is_numbered else [],
        [[label, *(cell(true, predicted) for predicted in range(len(labels)))]
         for true, label in enumerate(labels[:len(counts)])],
        look="matrix" + (" upright" * is_upright if is_numbered else " dense"))


def _mistakes(classification: Classification, shown: Shown) -> List[Dict[str, List[Part]]]:
    """The worst mistakes. Their texts are read again, because the store has only token ids."""
    kind, errors = shown.kind, shown.errors
    worst = [index for index in np.argsort(-errors, kind="stable")[:_MAX_MISTAKES].tolist()
             if errors[index] > 0]
    examples = items_at(worst, classification.task.dev.examples(kind))

    def name(label: Any) -> str:
        return kind.format_label(label) or "none" if kind.labels else number(float(label))

    return [{**{title: [Part(text[:_MAX_CHARACTERS])]
                for title, text in zip(("Text", "Second text"), examples[index].texts)},
             "Label": [Part(name(shown.labels[index]))],
             "Predicted": [Part(name(shown.predicted[index]), ("" if kind.labels else "off by ")
                                + number(float(errors[index])), is_right=False)]}
            for index in worst]

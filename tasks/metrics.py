"""The metrics of the tasks, computed by scikit-learn and SciPy."""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from encoder.label_types import Kind, SingleLabel
from runs.capability import LEAST_JUDGED, warning_of_loss

_MAX_MATRIX_CLASSES = 100  # with more classes, no confusion matrix is written


class Metric(NamedTuple):
    """A function of labels and predictions, which have the form that label_types describes."""
    name: str  # in eval_results.txt
    score: Callable[[np.ndarray, np.ndarray], float]  # (labels [n], predicted [n])


# scikit-learn takes a second to import, so it is imported only when a metric is computed.
def _of_classes(name: str, function: str, **options: Any) -> Metric:
    def score(labels: np.ndarray, predicted: np.ndarray) -> float:
        import sklearn.metrics
        return getattr(sklearn.metrics, function)(labels, predicted, **options)

    return Metric(name, score)


def _correlation(name: str, function: str) -> Metric:
    """The correlation; NaN (it is undefined) if all labels or all predictions are equal."""
    def score(labels: np.ndarray, predicted: np.ndarray) -> float:
        import scipy.stats
        if np.ptp(labels) == 0 or np.ptp(predicted) == 0:
            return math.nan
        return getattr(scipy.stats, function)(labels, predicted)[0]

    return Metric(name, score)


def _r2(labels: np.ndarray, predicted: np.ndarray) -> float:
    """1 - squared error / variance: 1 if all are right, 0 for the mean; NaN if all labels are equal."""
    import sklearn.metrics
    return sklearn.metrics.r2_score(labels, predicted) if np.ptp(labels) else math.nan


accuracy = _of_classes("eval_accuracy", "accuracy_score")
matthews_correlation = _of_classes("matthews_correlation", "matthews_corrcoef")
f1 = _of_classes("f1", "f1_score", zero_division=0)
micro_f1 = _of_classes("micro_f1", "f1_score", average="micro", zero_division=0)
# The mean over the classes that occur in the labels or the predictions.
macro_f1 = _of_classes("macro_f1", "f1_score", average="macro", zero_division=0)
r2 = Metric("r2", _r2)
pearson = _correlation("pearson", "pearsonr")
spearman = _correlation("spearman", "spearmanr")


def evaluate(metrics: Sequence[Metric], labels: np.ndarray, predicted: np.ndarray,
             per_example_loss: np.ndarray) -> Dict[str, float]:
    """The metrics and the mean loss of n predictions, by their names in eval_results.txt."""
    results = {metric.name: float(metric.score(labels, predicted)) for metric in metrics}
    results["eval_loss"] = float(np.mean(per_example_loss, dtype=np.float64))
    return results


def warning(kind: Kind, labels: np.ndarray, predicted: np.ndarray, loss: float, *, was_fitted: bool = False
            ) -> Optional[str]:
    """Says of a dev set's predictions that they are hardly better than a constant; None if they are.

    Args:
        loss: the mean of the predictions.
        was_fitted: whether the output layer was fitted before the training.
    """
    if len(labels) < LEAST_JUDGED:
        return None
    constant = np.broadcast_to(kind.best_constant(labels), (len(labels), kind.num_outputs))
    of_loss = warning_of_loss(loss, "always predicting the labels' " + ("frequencies" if kind.labels else "mean"),
                              float(kind.losses(constant, labels).mean()), len(labels))
    if not of_loss and isinstance(kind, SingleLabel):
        of_set = np.unique(labels)
        never = np.setdiff1d(of_set, predicted)
        if len(of_set) > 2 and len(never) > len(of_set) / 2:
            return (f"this model never predicts {len(never)} of the {len(of_set)} labels of the dev set, such as "
                    f"{kind.format_label(never[0])!r}: look at macro_f1; " + "--fit_output_layer, " * (not was_fitted)
                    + "more epochs or a higher --learning_rate may teach them")
    return of_loss


def per_class(kind: Kind, labels: np.ndarray, predicted: np.ndarray) -> List[Dict[str, Any]]:
    """Precision, recall, F1 and the number of examples of each class; empty for a regression."""
    from sklearn.metrics import precision_recall_fscore_support
    names = kind.labels
    if not names:
        return []
    columns = precision_recall_fscore_support(
        labels, predicted, labels=np.arange(len(names)), zero_division=0)
    return [{"label": name, "precision": float(precision), "recall": float(recall),
             "f1": float(f1_score), "num_examples": int(count)}
            for name, precision, recall, f1_score, count in zip(names, *columns)]


def confusion_matrix(kind: Kind, labels: np.ndarray, predicted: np.ndarray) -> List[List[int]]:
    """Counts by [label][prediction]; empty unless each example has one of a few classes."""
    from sklearn.metrics import confusion_matrix as count
    if not isinstance(kind, SingleLabel) or kind.num_outputs > _MAX_MATRIX_CLASSES:
        return []
    return count(labels, predicted, labels=np.arange(kind.num_outputs)).tolist()

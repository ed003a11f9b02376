"""The metrics of the tasks, computed by scikit-learn and SciPy."""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np

from runs.label_types import Kind, SingleLabel

_MAX_MATRIX_CLASSES = 100  # with more classes, no confusion matrix is written


class Metric(NamedTuple):
    """A function of labels and predictions, which have the form that label_types describes."""
    name: str  # in eval_results.txt
    score: Callable[[np.ndarray, np.ndarray], float]  # (labels [n], predicted [n])


# scikit-learn takes a second to import, so it is imported only when a metric is computed.
def _accuracy(labels, predicted):
    from sklearn.metrics import accuracy_score
    return accuracy_score(labels, predicted)


def _matthews(labels, predicted):
    from sklearn.metrics import matthews_corrcoef
    return matthews_corrcoef(labels, predicted)


def _f1(labels, predicted):
    from sklearn.metrics import f1_score
    return f1_score(labels, predicted, zero_division=0)


def _micro_f1(labels, predicted):
    from sklearn.metrics import f1_score
    return f1_score(labels, predicted, average="micro", zero_division=0)


def _macro_f1(labels, predicted):
    """The mean over the classes that occur in the labels or the predictions."""
    from sklearn.metrics import f1_score
    return f1_score(labels, predicted, average="macro", zero_division=0)


def _pearson(labels, predicted):
    from scipy.stats import pearsonr
    return _correlation(pearsonr, labels, predicted)


def _spearman(labels, predicted):
    from scipy.stats import spearmanr
    return _correlation(spearmanr, labels, predicted)


def _correlation(function, labels, predicted):
    """The correlation; NaN (it is undefined) if all labels or all predictions are equal."""
    if np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return math.nan
    return function(labels, predicted)[0]


accuracy = Metric("eval_accuracy", _accuracy)
matthews_correlation = Metric("matthews_correlation", _matthews)
f1 = Metric("f1", _f1)
micro_f1 = Metric("micro_f1", _micro_f1)
macro_f1 = Metric("macro_f1", _macro_f1)
pearson = Metric("pearson", _pearson)
spearman = Metric("spearman", _spearman)


def evaluate(metrics: Sequence[Metric], labels: np.ndarray, predicted: np.ndarray,
             per_example_loss: np.ndarray) -> Dict[str, float]:
    """The metrics and the mean loss of n predictions, by their names in eval_results.txt."""
    results = {metric.name: float(metric.score(labels, predicted)) for metric in metrics}
    results["eval_loss"] = float(np.mean(per_example_loss, dtype=np.float64))
    return results


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

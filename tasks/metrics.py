"""The metrics of the tasks, through scikit-learn and SciPy, on the host."""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np

from tasks.label_types import Kind, OneClass

# Of more classes than this, the confusion matrix is no longer written out.
_MOST_CLASSES_IN_A_MATRIX = 100


class Metric(NamedTuple):
    """A score of predictions against labels: class indices, or numbers in a regression."""
    name: str  # of its line in eval_results.txt
    score: Callable[[np.ndarray, np.ndarray], float]  # (labels [n], predicted [n])


# scikit-learn takes a second to import: only a run that scores something waits for it.
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
    """Over the classes that occur, among the labels or the predictions."""
    from sklearn.metrics import f1_score
    return f1_score(labels, predicted, average="macro", zero_division=0)


def _pearson(labels, predicted):
    from scipy.stats import pearsonr
    return _correlation(pearsonr, labels, predicted)


def _spearman(labels, predicted):
    from scipy.stats import spearmanr
    return _correlation(spearmanr, labels, predicted)


def _correlation(function, labels, predicted):
    """NaN, as there is none, where all labels or all predictions are the same."""
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
    """The metrics and the mean loss of n predictions, under the names of the results file."""
    results = {metric.name: float(metric.score(labels, predicted)) for metric in metrics}
    results["eval_loss"] = float(np.mean(per_example_loss, dtype=np.float64))
    return results


def per_class(kind: Kind, labels: np.ndarray, predicted: np.ndarray) -> List[Dict[str, Any]]:
    """Precision, recall, F1 and number of examples of each class; empty for a regression."""
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
    """[label, prediction]; empty where it has no meaning or would be too large to look at."""
    from sklearn.metrics import confusion_matrix as count
    if not isinstance(kind, OneClass) or kind.num_outputs > _MOST_CLASSES_IN_A_MATRIX:
        return []
    return count(labels, predicted, labels=np.arange(kind.num_outputs)).tolist()

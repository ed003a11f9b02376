"""The metrics of the tasks, through scikit-learn and SciPy, on the host."""

import math
from typing import Callable, Dict, NamedTuple, Sequence

import numpy as np


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
pearson = Metric("pearson", _pearson)
spearman = Metric("spearman", _spearman)


def evaluate(metrics: Sequence[Metric], labels: np.ndarray, predicted: np.ndarray,
             per_example_loss: np.ndarray) -> Dict[str, float]:
    """The metrics and the mean loss of n predictions, under the names of the results file."""
    results = {metric.name: float(metric.score(labels, predicted)) for metric in metrics}
    results["eval_loss"] = float(np.mean(per_example_loss, dtype=np.float64))
    return results

"""Fits a new output layer to the encoder's features before the first step of a training.

A layer that starts at random wastes a short training, and distorts the features that the encoder has
(Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution",
ICLR 2022). Fitted, it starts as the best linear model of the features: a logistic regression, or a ridge
regression of standardized numbers, whose penalty cross-validation within the training set chooses.
"""

import functools
import time
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

import numpy as np

from encoder import classifier, label_types, model_files, variables
from encoder.label_types import Kind
from engine import log
from engine.data.batches import Source
from engine.inference import Predictor
from engine.model import FittedLayer
from engine.progress import Counter, counted
from engine.settings import AUTO
from runs.capability import Job

_FEW = 3  # classes or labels that a layer which starts at random learns as well (docs/results.md)
_MOST_ROWS = 20_000  # of features
_MOST_LOGITS = 2_000_000  # of all rows: with many classes, there are fewer rows
_FOLDS = 3
_PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of the mean loss, per squared weight; the strongest first
_ROUGHLY, _EXACTLY = 1e-3, 1e-5  # components of the gradient, by `_fit`'s units, at which a fit ends
# A feature that is nearly constant is no cause for large weights: its deviation counts as this share of
# the root mean square of all features' deviations, at least.
_LEAST_DEVIATION = 0.1
_CLEARLY = 2.0  # standard errors of a mean difference
_MOST_CHANGE = 1.0  # of a logit or standardized number in a step of the training


class Rows(NamedTuple):
    """What a layer is fitted to: n states of the encoder, and what the layer should make of them."""
    features: np.ndarray  # float32 [n, d]
    labels: np.ndarray  # as `Kind.targets` has them, of the numbers that the layer learns; or see `OneOf`
    counts: Optional[np.ndarray] = None  # with OneOf: the rows of each question, [questions]


class OneOf(NamedTuple):
    """Each output says which of a question's rows is the right one: labels are 1.0 for it and 0.0 for the others."""
    num_outputs: int


class _Likelihood(NamedTuple):
    """An exponential family: -log p(target) = log_partition(logits) - target * logits + a constant."""
    targets: Callable[[np.ndarray, int], np.ndarray]  # (labels, k) → [n, k]
    log_partition: Callable[[np.ndarray], np.ndarray]  # logits [n, k] → [n], or [questions]
    mean: Callable[[np.ndarray], np.ndarray]  # logits [n, k] → the expected targets [n, k]
    constant: Callable[[np.ndarray], np.ndarray]  # targets → the logits of the best constant answer, [k]
    variance: Callable[[np.ndarray], np.ndarray]  # that answer → the variances of the targets, [k]
    metric: str  # the name of the score
    score: Callable[[np.ndarray, np.ndarray], float]  # (targets, logits) → the higher the better
    of_constant: str  # the name of the same score of the constant answer
    counts: Optional[np.ndarray] = None  # the rows of each question; None: each row is one

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The loss of each row, [n], or question, up to a constant."""
        totals = (targets * logits).sum(axis=1)
        if self.counts is not None:
            totals = np.add.reduceat(totals, _starts(self.counts))
        return self.log_partition(logits) - totals

    def of_part(self, is_in: np.ndarray) -> "_Likelihood":
        """Of a part of the rows, [n]: all of a question, or none."""
        return self if self.counts is None else _one_of(self.counts[is_in[_starts(self.counts)]])


class Sample(NamedTuple):
    """Examples of the training set, without labels, to which a layer is fitted."""
    source: Source
    indices: np.ndarray  # of the examples in the source
    rows_of: Callable[[np.ndarray], Rows]  # of their features


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts


def _micro_f1(targets: np.ndarray, logits: np.ndarray) -> float:
    predicted = logits >= 0
    return float(2 * (predicted * targets).sum() / max(1, predicted.sum() + targets.sum()))


# No class is impossible because a part of the examples lacks it: each counts as seen once more.
_LIKELIHOODS: Mapping[Type[Kind], _Likelihood] = {
    label_types.SingleLabel: _Likelihood(
        lambda labels, k: np.eye(k)[labels], lambda logits: (logits - label_types.log_softmax(logits))[:, 0],
        lambda logits: np.exp(label_types.log_softmax(logits)),
        lambda targets: np.log((targets.sum(axis=0) + 1) / (len(targets) + targets.shape[1])),
        lambda constant: np.exp(constant) * (1 - np.exp(constant)),
        "accuracy", lambda targets, logits: float(
            (targets.argmax(axis=1) == logits.argmax(axis=1)).mean()), "most frequent class"),
    label_types.MultiLabel: _Likelihood(
        lambda labels, k: labels.astype(np.float64),
        lambda logits: np.logaddexp(0.0, logits).sum(axis=1),
        lambda logits: np.exp(-np.logaddexp(0.0, -logits)),
        lambda targets: np.log(targets.sum(axis=0) + 1) - np.log((1 - targets).sum(axis=0) + 1),
        lambda constant: np.exp(-np.logaddexp(0.0, -constant) - np.logaddexp(0.0, constant)),
        "micro F1", _micro_f1, "constant answer"),
    label_types.Regression: _Likelihood(
        lambda labels, k: labels.astype(np.float64)[:, np.newaxis],
        lambda logits: np.square(logits).sum(axis=1) / 2, lambda logits: logits,
        lambda targets: targets.mean(axis=0), np.ones_like, "R²", lambda targets, logits: float(
            1 - np.square(targets - logits).sum() / np.square(targets - targets.mean()).sum()), "mean"),
}


def _one_of(counts: np.ndarray) -> _Likelihood:
    """McFadden's conditional logit, for `OneOf`. The bias of an output changes nothing."""
    starts = _starts(counts)

    def log_partitions(logits: np.ndarray) -> np.ndarray:
        largest = np.maximum.reduceat(logits, starts)
        return largest + np.log(np.add.reduceat(np.exp(logits - np.repeat(largest, counts, axis=0)), starts))

    def accuracy(targets: np.ndarray, logits: np.ndarray) -> float:
        is_best = logits == np.repeat(np.maximum.reduceat(logits, starts), counts, axis=0)
        return float((np.add.reduceat(is_best * targets, starts) / np.add.reduceat(is_best, starts, dtype=int)).mean())

    return _Likelihood(
        lambda labels, k: labels.astype(np.float64).reshape(-1, k),
        lambda logits: log_partitions(logits).sum(axis=1),
        lambda logits: np.exp(logits - np.repeat(log_partitions(logits), counts, axis=0)),
        lambda targets: np.zeros(targets.shape[1]), lambda constant: np.full_like(constant, 1 - (1 / counts).mean()),
        "accuracy", accuracy, "choosing at random", counts)


class _Layer(NamedTuple):
    weights: np.ndarray  # [d, k]
    bias: np.ndarray  # [k]

    def logits(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weights + self.bias


class Probe(NamedTuple):
    """A layer that was fitted to standardized features."""
    layer: Optional[_Layer]  # None: it is not clearly better than a constant
    mean: np.ndarray  # of the features, [d]
    deviation: np.ndarray  # [d]
    summary: Dict[str, Any]  # JSON values: how good it is

    def output_layer(self, learning_rate: float, names: Sequence[str] = model_files.OUTPUT_LAYER) -> FittedLayer:
        """The layer for the features themselves, to be trained at this rate, and no more sensitive than `_MOST_CHANGE`.

        Adam changes each weight by about the rate, so a feature, which has d inputs of about 1, by d times as
        much. With large weights the first steps would throw the answers about.
        """
        if not self.layer:
            return FittedLayer({}, self.summary)
        weights = self.layer.weights / self.deviation[:, np.newaxis]
        change = learning_rate * len(weights) * np.abs(weights).sum(axis=0).mean()
        weights /= max(1.0, change / _MOST_CHANGE)
        values = weights.T, self.layer.bias - self.mean @ weights
        return FittedLayer({name: value.astype(np.float32) for name, value in zip(names, values)}, self.summary)


def sample(count: int, most: int, classes: Optional[np.ndarray] = None) -> np.ndarray:
    """The numbers of at most about `most` of `count` examples: the same share of each class, but at least one."""
    if count <= most:
        return np.arange(count)
    classes = np.zeros(count, int) if classes is None else classes
    order = np.argsort(classes, kind="stable")
    _, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    rank = np.arange(count) - np.repeat(starts, counts)  # within the class
    share = most / count
    return np.sort(order[(rank == 0) | (np.floor((rank + 1) * share) > np.floor(rank * share))])


def most_rows(num_outputs: int) -> int:
    """How many rows a layer with so many outputs is fitted to, at most."""
    return min(_MOST_ROWS, _MOST_LOGITS // num_outputs)


def fitting(job: Job, kind: Union[Kind, OneOf], unit: str, *, find: Callable[[], Sample],
            positions: Optional[str] = None, has_dropout: bool = True, names: Sequence[str] = model_files.OUTPUT_LAYER
            ) -> Callable[[float], Optional[FittedLayer]]:
    """What fits the output layer, for `Training.fit`; at its first call alone, so that all tries share it.

    Args:
        kind: of the labels, whose likelihood is maximized.
        unit: of the rows, in the plural.
        find: takes the sample.
        positions: of the tokens whose states the layer reads; see `classifier.states_of`.
        has_dropout: whether a training drops a part of what the layer reads.
        names: of the layer's weights and bias.
    """
    @functools.lru_cache(maxsize=None)
    def probe() -> Optional[Probe]:
        start, settings = job.settings.init_checkpoint, job.settings.training
        is_wanted = settings.fit_output_layer
        if is_wanted == AUTO:
            is_wanted = isinstance(kind, OneOf) or bool(kind.labels) and kind.num_outputs > _FEW
        if not is_wanted or not start:
            return None
        if all(name in start.shapes for name in names):
            if settings.fit_output_layer is True:
                log.info(f"--fit_output_layer: nothing is fitted, since the output layer of {start.path} is kept; "
                         "--new_output_layer starts it anew")
            return None
        missing = model_files.missing_variables(start, job.model.config, variables.ENCODER)
        if missing:
            log.info(f"The output layer starts at random: {start.path} lacks {missing[0]}, which it reads from")
            return None
        began = time.time()
        sampled = find()
        with Predictor(classifier.states_of(job.model.config, positions), job.devices) as predictor, Counter(
                "Fitting the output layer", unit="examples", total=len(sampled.indices)) as counter:
            predictor.restore(start)
            examples = sampled.source.subset(sampled.indices)._replace(dynamic_padding=settings.dynamic_padding)
            predictions = predictor.predict(
                examples, job.settings.evaluation.eval_batch_size, counter.advance)
        return fit_probe(sampled.rows_of(predictions["features"]), kind, unit, began,
                         job.model.config.hidden_dropout_prob if has_dropout else 0.0)

    def fit(learning_rate: float) -> Optional[FittedLayer]:
        fitted, num_layers = probe(), job.model.config.num_hidden_layers
        features_change = positions is None or job.settings.training.freeze_layers < num_layers
        return fitted and fitted.output_layer(learning_rate if features_change else 0.0, names)
    return fit


def fit_probe(rows: Rows, kind: Union[Kind, OneOf], unit: str, began: float, dropout: float = 0.0) -> Probe:
    """Fits a layer; none if its answers are not clearly better than a constant in cross-validation.

    Args:
        dropout: of the features in training, which the layer has to bear: where a feature is much larger than its
            deviation, dropout is mostly noise, and the weight must be small.
    """
    likelihood = _LIKELIHOODS[type(kind)] if rows.counts is None else _one_of(rows.counts)
    targets = likelihood.targets(rows.labels, kind.num_outputs)
    features, mean, deviation = _standardized(rows.features)
    # The variance that dropout adds to the features, for each of them, [d].
    noise = dropout / (1 - dropout) * (np.square(features).mean(axis=0) + np.square(
        mean / np.where(deviation > 0, deviation, 1.0)))
    summary: Dict[str, Any] = {"is_used": False, "rows": len(features), "unit": unit}
    layer = None
    if deviation.any() and len(features if rows.counts is None else rows.counts) >= 2 * _FOLDS:
        penalty, probed, constant = _cross_validate(likelihood, features, targets, noise)
        summary.update(metric=likelihood.metric, cross_validated=likelihood.score(targets, probed),
                       compared_with=likelihood.of_constant, of_that=likelihood.score(targets, constant))
        gains = likelihood.losses(constant, targets) - likelihood.losses(probed, targets)
        if gains.mean() > _CLEARLY * gains.std() / np.sqrt(len(gains)):
            layer = _fit(likelihood, features, targets, noise, penalty, _EXACTLY)
            summary["is_used"] = True
    log.info(describe(summary, f" in {time.time() - began:.0f} s"))
    return Probe(layer, mean, deviation, summary)


def describe(summary: Mapping[str, Any], took: str = "") -> str:
    """How an output layer was fitted, and how good it was before the first step."""
    rows = counted(summary["rows"], summary["unit"])
    scores = "metric" in summary and (
        f"{summary['metric']} {summary['cross_validated']:.2f} in cross-validation, "
        f"{summary['compared_with']} {summary['of_that']:.2f}")
    if summary["is_used"]:
        return f"Output layer fitted to {rows}{took}: {scores}"
    return (f"The output layer starts at random: fitted to {rows}{took}, it is not clearly better than a constant "
            f"answer{scores and f' ({scores})' or ''}")


def _standardized(features: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with the mean 0 and a deviation of at most 1; their means and deviations, [d]."""
    features = features.astype(np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.maximum(deviation, _LEAST_DEVIATION * np.sqrt(np.square(deviation).mean()))
    return (features - mean) / (deviation if deviation.any() else 1.0), mean, deviation


def _cross_validate(likelihood: _Likelihood, features: np.ndarray, targets: np.ndarray, noise: np.ndarray
                    ) -> Tuple[float, np.ndarray, np.ndarray]:
    """The best penalty; the logits of the rows by layers that were fitted without them; those of constants."""
    fold = np.empty(len(targets), int)
    fold[np.lexsort(targets.T)] = np.arange(len(targets)) % _FOLDS  # each has its share of each class
    if likelihood.counts is not None:
        fold = np.repeat(np.arange(len(likelihood.counts)) % _FOLDS, likelihood.counts)
    constant = np.concatenate([np.broadcast_to(
        likelihood.constant(targets[fold != number]), targets.shape)[np.newaxis]
        for number in range(_FOLDS)])[fold, np.arange(len(targets))]
    layers: Dict[int, Optional[_Layer]] = dict.fromkeys(range(_FOLDS))
    best = None
    for penalty in _PENALTIES:
        logits = np.empty_like(targets)
        for number in layers:
            layers[number] = _fit(likelihood.of_part(fold != number), features[fold != number],
                                  targets[fold != number], noise, penalty, _ROUGHLY, layers[number])
            logits[fold == number] = layers[number].logits(features[fold == number])
        loss = likelihood.losses(logits, targets).mean()
        if best and loss >= best[0]:
            break
        best = loss, penalty, logits
    return best[1], best[2], constant


def _fit(likelihood: _Likelihood, features: np.ndarray, targets: np.ndarray, noise: np.ndarray, penalty: float,
         tolerance: float, start: Optional[_Layer] = None) -> _Layer:
    """The layer with the least mean loss + penalty / 2 * (|weights|² + |bias - constant|²) under dropout.

    What dropout adds to the mean loss is approximated by half the variance of the logits times that of the
    targets (Wager et al., "Dropout Training as Adaptive Regularization", NeurIPS 2013, section 2), the latter of
    the constant answer.

    Args:
        features, targets: [n, d], [n, k].
        noise: the variance that dropout adds to each feature, [d].
        tolerance: the largest component of the gradient at the end.
    """
    from scipy.optimize import minimize
    (n, d), k, constant = features.shape, targets.shape[1], likelihood.constant(targets)
    variance = likelihood.variance(constant)
    penalties = penalty + noise[:, np.newaxis] * variance
    if likelihood.counts is not None:
        n = len(likelihood.counts)
    # About the curvature of the loss, [d + 1, k]. In units in which it is 1 everywhere, there are fewer iterations.
    units = 1 / np.sqrt(np.concatenate([penalties + np.square(features).mean(axis=0)[:, np.newaxis] * variance,
                                        [penalty + variance]]))

    def unpacked(flat: np.ndarray) -> _Layer:
        values = flat.reshape(d + 1, k) * units
        return _Layer(values[:d], values[d])

    def objective(flat: np.ndarray) -> Tuple[float, np.ndarray]:
        layer = unpacked(flat)
        logits, shift = layer.logits(features), layer.bias - constant
        error = (likelihood.mean(logits) - targets) / n
        loss = likelihood.losses(logits, targets).mean() + (
            (penalties * np.square(layer.weights)).sum() + penalty * np.square(shift).sum()) / 2
        gradient = np.concatenate([features.T @ error + penalties * layer.weights,
                                   [error.sum(axis=0) + penalty * shift]])
        return loss, (gradient * units).ravel()

    start = start or _Layer(np.zeros((d, k)), constant)
    return unpacked(minimize(
        objective, (np.concatenate([start.weights, [start.bias]]) / units).ravel(), jac=True, method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 0, "maxiter": 1000}).x)

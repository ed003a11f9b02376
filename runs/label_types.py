"""The kinds of labels: exactly one class, any number of classes, or a number.

A kind parses labels, stores them, computes the loss of a model's logits, and turns the logits
into predictions. The labels of n examples are an array [n], or [n, classes] (0 or 1) if an
example can have several classes.
"""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from encoder import label_config
from engine.data.store import Column, Records

_TINY = 1e-9  # the share of a label that no example has


class Kind:
    """How the labels of a task are parsed, stored, predicted and formatted."""
    name: str
    column: Column  # the type of the labels in the store
    num_outputs: int  # of the model
    labels: Tuple[str, ...] = ()  # names of the classes; empty for a regression
    separator: str = ""  # between the labels of one example; empty if it has exactly one
    aliases: Mapping[str, str] = {}  # other names that a file may give a label → the label
    # Of the numbers that a regression learned. Its model learns (label - mean) / deviation.
    mean: float = 0.0
    deviation: float = 1.0

    def parse(self, text: str) -> Any:
        """Parses a label. Raises ValueError, whose message completes "the label must be"."""
        raise NotImplementedError

    def to_chunk(self, labels: List[Any]) -> Any:
        """Parsed labels as a chunk of the store's column."""
        return np.array(labels)

    def targets(self, records: Records, indices) -> np.ndarray:
        """The labels of these records, [n] or [n, classes]."""
        return records.scalars("label", indices)

    def losses(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The loss of each example, [n], from logits [n, num_outputs]."""
        raise NotImplementedError

    def best_constant(self, labels: np.ndarray) -> np.ndarray:
        """The logits, [num_outputs], that have the least mean loss if all examples get the same."""
        raise NotImplementedError

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities [n, classes], or a regression's predicted numbers [n, 1]."""
        raise NotImplementedError

    def predicted_labels(self, scores: np.ndarray) -> np.ndarray:
        """The predictions, in the form of labels: [n] or [n, classes]."""
        raise NotImplementedError

    def errors(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """How wrong each prediction is, [n]: 0 if it is right, else the model's confidence in it.

        For a regression, the absolute difference.
        """
        raise NotImplementedError

    def format_label(self, label: Any, names: Optional[Sequence[str]] = None) -> str:
        """The text of one label or of one row of `predicted_labels`; `names`: of the labels."""
        raise NotImplementedError


class SingleLabel(Kind):
    """Exactly one label for each example; trained with softmax cross-entropy."""
    name = "classes"
    column = Column("int32", ragged=False)

    def __init__(self, labels: Sequence[str], aliases: Mapping[str, str] = {}):
        self.labels, self.aliases = tuple(labels), aliases
        self.num_outputs = len(self.labels)
        self._indices = {label: index for index, label in enumerate(labels)}

    def parse(self, text: str) -> int:
        name = text.strip()
        index = self._indices.get(self.aliases.get(name, name))
        if index is None:
            raise ValueError(f"one of {_listed(self.labels)}")
        return index

    def losses(self, logits, labels):
        return -log_softmax(logits)[np.arange(len(labels)), labels]

    def best_constant(self, labels):
        return np.log(np.bincount(labels, minlength=self.num_outputs) + _TINY)

    def scores(self, logits):
        return np.exp(log_softmax(logits))

    def predicted_labels(self, scores):
        return scores.argmax(axis=1)

    def errors(self, scores, labels):
        return np.where(self.predicted_labels(scores) == labels, 0.0, scores.max(axis=1))

    def format_label(self, label, names=None) -> str:
        return (names or self.labels)[int(label)]


class Scorer(SingleLabel):
    """Whether a phrase fits a slot of a text: yes is the second label."""
    name = label_config.SCORER


class MultiLabel(Kind):
    """Any number of labels for each example, also none; trained with sigmoid cross-entropy."""
    name = "multi_label"
    column = Column("int32", ragged=True)

    def __init__(self, labels: Sequence[str], separator: str):
        self.labels = tuple(labels)
        self.separator = separator
        self.num_outputs = len(self.labels)
        self._indices = {label: index for index, label in enumerate(labels)}

    def parse(self, text: Union[str, List[str]]) -> Tuple[int, ...]:
        names = split_labels(text, self.separator)
        unknown = next((name for name in names if name not in self._indices), None)
        if unknown is not None:
            raise ValueError(f"made of {_listed(self.labels)}, and {unknown!r} is none of them")
        return tuple(sorted({self._indices[name] for name in names}))

    def to_chunk(self, labels):
        lengths = np.array([len(label) for label in labels], np.int64)
        return np.array([index for label in labels for index in label], np.int32), lengths

    def targets(self, records, indices):
        values, lengths = records.values("label", indices)
        targets = np.zeros((len(lengths), self.num_outputs), np.float32)
        targets[np.repeat(np.arange(len(lengths)), lengths), values] = 1.0
        return targets

    def losses(self, logits, labels):
        logits = logits.astype(np.float64)
        # -log sigmoid(x) for a label that the example has, -log sigmoid(-x) for the others.
        return np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).mean(axis=1)

    def best_constant(self, labels):
        shares = labels.mean(axis=0, dtype=np.float64)
        return np.log(shares + _TINY) - np.log(1.0 - shares + _TINY)

    def scores(self, logits):
        return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))

    def predicted_labels(self, scores):
        return (scores >= 0.5).astype(np.float32)

    def errors(self, scores, labels):
        wrong = self.predicted_labels(scores) != labels
        return np.where(wrong, np.maximum(scores, 1.0 - scores), 0.0).max(axis=1)

    def format_label(self, label, names=None) -> str:
        names = names or self.labels
        return self.separator.join(names[index] for index in np.flatnonzero(label))


_LARGEST_NUMBER = float(np.finfo(np.float32).max)  # that the store's column can hold


class Regression(Kind):
    """A number for each example; trained with the squared error."""
    name = "regression"
    column = Column("float32", ragged=False)
    num_outputs = 1

    def __init__(self, mean: float = 0.0, deviation: float = 1.0):
        self.mean, self.deviation = mean, deviation

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not abs(number) <= _LARGEST_NUMBER:  # nor NaN
            raise ValueError("a finite number of 32 bits, such as 1234.5")
        return number

    def losses(self, logits, labels):
        return (logits[:, 0].astype(np.float64) - labels) ** 2

    def best_constant(self, labels):
        return np.mean(labels, dtype=np.float64, keepdims=True)

    def scores(self, logits):
        return logits

    def predicted_labels(self, scores):
        return scores[:, 0].astype(np.float64)

    def errors(self, scores, labels):
        return np.abs(self.predicted_labels(scores) - labels)

    def format_label(self, label, names=None) -> str:
        return f"{float(label):.9g}"


def to_json(kind: Kind) -> Dict[str, Any]:
    """The kind as JSON values, for `from_json`."""
    standardized = (kind.mean, kind.deviation) != (0.0, 1.0)
    return {"kind": kind.name, "labels": list(kind.labels), "label_separator": kind.separator,
            **({"mean": kind.mean, "deviation": kind.deviation} if standardized else {})}


def from_json(values: Mapping[str, Any], where: str) -> Kind:
    """The kind that `to_json` described; raises a UserError if it is none of labels.

    Args:
        where: the model that it describes, for the message.
    """
    label_config.require_classifier(values, where)
    if values["kind"] == Regression.name:
        return Regression(*label_config.scale(values))
    if values["kind"] == MultiLabel.name:
        return MultiLabel(values["labels"], values["label_separator"])
    cls = Scorer if values["kind"] == Scorer.name else SingleLabel
    return cls(values["labels"])


def split_labels(text: Union[str, List[str]], separator: str) -> List[str]:
    """Splits a text into labels and strips them. A list of labels, as in JSON, is only stripped."""
    names = text.split(separator) if isinstance(text, str) else text
    return [name.strip() for name in names if name.strip()]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities [n, classes], in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= 20:
        return ", ".join(labels)
    return f"{', '.join(labels[:20])} ... ({len(labels):,} labels)"

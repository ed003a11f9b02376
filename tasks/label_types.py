"""What a label can be: one class, any number of classes, or a number.

A kind knows how a label is written, how it is stored, what the model is trained towards,
and what the model's outputs mean. Labels of n examples are arrays [n], [n, classes] for
several classes at once.
"""

import math
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

import numpy as np

from engine.data.store import Column, Records


class Kind:
    """How the labels of a task are read, stored, predicted and written."""
    name: str
    column: Column  # of the store
    num_outputs: int  # of the model
    labels: Tuple[str, ...] = ()  # the classes; none for a number
    separator: str = ""  # between the labels of an example, where it may have several

    def parse(self, text: str) -> Any:
        """A label as Python holds it. Raises ValueError with what it must be."""
        raise NotImplementedError

    def stored(self, labels: List[Any]) -> Any:
        """The labels of some examples as a chunk of the store's column."""
        return np.array(labels)

    def targets(self, records: Records, indices) -> np.ndarray:
        """The labels of these records."""
        return records.scalars("label", indices)

    def losses(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The loss of each example, [n]."""
        raise NotImplementedError

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities [n, classes], or the number [n, 1], from the model's outputs."""
        raise NotImplementedError

    def predicted(self, scores: np.ndarray) -> np.ndarray:
        """What the scores say, as labels are."""
        raise NotImplementedError

    def errors(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """How wrong each prediction is, [n]: 0 where it is right, else how sure of it the model."""
        raise NotImplementedError

    def written(self, label: Any) -> str:
        """A label, or one row of what `predicted` returns, for people."""
        raise NotImplementedError


class OneClass(Kind):
    """Exactly one of the labels; softmax and cross-entropy."""
    name = "classes"
    column = Column("int32", ragged=False)

    def __init__(self, labels: Sequence[str], aliases: Sequence[Tuple[str, str]] = ()):
        self.labels = tuple(labels)
        self.num_outputs = len(self.labels)
        self._indices = {label: index for index, label in enumerate(labels)}
        for alias, label in aliases:
            self._indices[alias] = self._indices[label]

    def parse(self, text: str) -> int:
        index = self._indices.get(text.strip())
        if index is None:
            raise ValueError(f"one of {_listed(self.labels)}")
        return index

    def losses(self, logits, labels):
        return -log_softmax(logits)[np.arange(len(labels)), labels]

    def scores(self, logits):
        return np.exp(log_softmax(logits))

    def predicted(self, scores):
        return scores.argmax(axis=1)

    def errors(self, scores, labels):
        return np.where(self.predicted(scores) == labels, 0.0, scores.max(axis=1))

    def written(self, label) -> str:
        return self.labels[int(label)]


class SeveralClasses(Kind):
    """Any number of the labels, none included; a sigmoid and cross-entropy for each."""
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

    def stored(self, labels):
        lengths = np.array([len(label) for label in labels], np.int64)
        return np.array([index for label in labels for index in label], np.int32), lengths

    def targets(self, records, indices):
        values, lengths = records.values("label", indices)
        targets = np.zeros((len(lengths), self.num_outputs), np.float32)
        targets[np.repeat(np.arange(len(lengths)), lengths), values] = 1.0
        return targets

    def losses(self, logits, labels):
        logits = logits.astype(np.float64)
        # -log sigmoid(x) where the label holds, -log sigmoid(-x) where it does not.
        return np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).mean(axis=1)

    def scores(self, logits):
        return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))

    def predicted(self, scores):
        return (scores >= 0.5).astype(np.float32)

    def errors(self, scores, labels):
        wrong = self.predicted(scores) != labels
        return np.where(wrong, np.maximum(scores, 1.0 - scores), 0.0).max(axis=1)

    def written(self, label) -> str:
        return self.separator.join(self.labels[index] for index in np.flatnonzero(label))


# That a label can be: the store's type has no larger ones.
_LARGEST_NUMBER = float(np.finfo(np.float32).max)


class Number(Kind):
    """A number; the squared error."""
    name = "regression"
    column = Column("float32", ragged=False)
    num_outputs = 1

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not abs(number) <= _LARGEST_NUMBER:  # nor NaN
            raise ValueError("a finite number of 32 bits")
        return number

    def losses(self, logits, labels):
        return (logits[:, 0].astype(np.float64) - labels) ** 2

    def scores(self, logits):
        return logits

    def predicted(self, scores):
        return scores[:, 0].astype(np.float64)

    def errors(self, scores, labels):
        return np.abs(self.predicted(scores) - labels)

    def written(self, label) -> str:
        return f"{float(label):.9g}"


def to_json(kind: Kind) -> Dict[str, Any]:
    """What `from_json` makes the kind of again."""
    return {"kind": kind.name, "labels": kind.labels,
            "label_separator": kind.separator}


def from_json(values: Mapping[str, Any]) -> Kind:
    if values["kind"] == Number.name:
        return Number()
    if values["kind"] == SeveralClasses.name:
        return SeveralClasses(values["labels"], values["label_separator"])
    return OneClass(values["labels"])


def split_labels(text: Union[str, List[str]], separator: str) -> List[str]:
    """The labels that a text of several holds; spaces around them do not count.

    A list of them, as JSON may have, is as good.
    """
    names = text.split(separator) if isinstance(text, str) else text
    return [name.strip() for name in names if name.strip()]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Of [n, classes], in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= 20:
        return ", ".join(labels)
    return f"{', '.join(labels[:20])} ... ({len(labels):,} labels)"

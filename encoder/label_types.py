"""The types of labels: exactly one class, any number of classes, or a number.

A type parses labels, stores them, computes the loss of a model's logits, and turns the logits
into predictions. The labels of n examples are an array [n], or [n, classes] (0 or 1) if an
example can have several classes. Types come from the training set, from the user (`of_names`), from
task.json (`of_description`) or from Hugging Face's config.json (`from_huggingface`).
"""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from encoder import task_json, written_labels
from engine.data.store import Column, Records
from engine.data.text_files import LINE_CHARACTERS
from engine.errors import UserError

# The name of a type → Hugging Face's name of it.
_PROBLEMS = {task_json.CLASSES: "single_label_classification",
             task_json.MULTI_LABEL: "multi_label_classification",
             task_json.REGRESSION: "regression"}
_KIND = "kind"  # an entry of ours in config.json
_SEPARATORS = (",", ";", "|", "#")
_TINY = 1e-9  # the share of a label that no example has


class Kind:
    """How the labels of a task are parsed, stored, predicted and formatted."""
    name: str  # of the kind of model in task.json
    column: Column  # the type of the labels in the store
    num_outputs: int  # of the model
    labels: Tuple[str, ...] = ()  # names of the classes; empty for a regression
    separator: str = ""  # between the labels of one example; empty if it has exactly one
    takes_lists = True  # whether a label may be written as a list, or as an object of flags
    aliases: Mapping[str, str] = {}  # other names that a file may give a label → the label
    # Of the numbers that a regression learned. Its model learns (label - mean) / deviation.
    mean: float = 0.0
    deviation: float = 1.0

    def with_more(self, labels: Sequence[str]) -> "Kind":
        """The same kind, with labels that no model learns behind the others."""
        return self

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

    def describe(self) -> Dict[str, Any]:
        """The entries of task.json, for `of_description`."""
        is_standardized = (self.mean, self.deviation) != (0.0, 1.0)
        return {"kind": self.name, "labels": list(self.labels), "label_separator": self.separator,
                **({"mean": self.mean, "deviation": self.deviation} if is_standardized else {})}


class SingleLabel(Kind):
    """Exactly one label for each example; trained with softmax cross-entropy."""
    name = task_json.CLASSES
    column = Column("int32", ragged=False)

    def __init__(self, labels: Sequence[str], aliases: Mapping[str, str] = {},
                 name: str = task_json.CLASSES):
        self.labels, self.aliases, self.name = tuple(labels), aliases, name
        self.num_outputs = len(self.labels)
        self._indices = {label: index for index, label in enumerate(labels)}

    def with_more(self, labels: Sequence[str]) -> "SingleLabel":
        return SingleLabel((*self.labels, *labels), self.aliases, self.name)

    def parse(self, text: written_labels.Written) -> int:
        written = written_labels.listed(text)
        names = [text] if written is None else [
            name for name, has_it in written_labels.split(
                written, "", written_labels.places(self.labels)).items() if has_it]
        name = names[0].strip() if len(names) == 1 else ""
        index = self._indices.get(self.aliases.get(name, name))
        if index is None:
            raise ValueError(f"one of {_listed(self.labels)}" + (
                "" if written is None else "; --label_kind=multi_label allows any number of them"))
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


class MultiLabel(Kind):
    """Any number of labels for each example, also none; trained with sigmoid cross-entropy."""
    name = task_json.MULTI_LABEL
    column = Column("int32", ragged=True)

    def __init__(self, labels: Sequence[str], separator: str):
        self.labels = tuple(labels)
        self.separator = separator
        self.num_outputs = len(self.labels)
        self._indices = {label: index for index, label in enumerate(labels)}

    def with_more(self, labels: Sequence[str]) -> "MultiLabel":
        return MultiLabel((*self.labels, *labels), self.separator)

    def parse(self, text: written_labels.Written) -> Tuple[int, ...]:
        written = written_labels.split(text, self.separator, written_labels.places(self.labels))
        unknown = next((name for name in written if name not in self._indices), None)
        if unknown is not None:
            raise ValueError(f"made of {_listed(self.labels)}, and {unknown!r} is none of them")
        return tuple(sorted({self._indices[name] for name, has_it in written.items() if has_it}))

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
    name = task_json.REGRESSION
    column = Column("float32", ragged=False)
    num_outputs = 1
    takes_lists = False

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


def of_description(description: Mapping[str, Any], where: str) -> Kind:
    """The labels of a classifier; raises a UserError if the description is damaged or of another model.

    Args:
        description: the content of task.json.
        where: the model that it describes, for the message.
    """
    kind = description["kind"]
    if not task_json.is_classifier(description):
        raise UserError(f"{where} is no classifier of texts: its {task_json.FILE} names the kind "
                        f"{kind!r}")
    labels, separator = description["labels"], description["label_separator"]
    if not all(isinstance(label, str) for label in labels) or (
            kind != Regression.name) != bool(labels):
        raise UserError(f"{where}: {task_json.FILE} is damaged: its labels are {str(labels)[:40]}")
    check_labels(labels, f"{where}: {task_json.FILE}")
    if kind == MultiLabel.name and not separator:
        raise UserError(f"{where}: {task_json.FILE} is damaged: it has no label_separator")
    mean, deviation = description.get("mean", 0.0), description.get("deviation", 1.0)
    if not (type(mean) in (int, float) and type(deviation) in (int, float)
            and math.isfinite(mean) and 0 < deviation < math.inf):
        raise UserError(f"{where}: {task_json.FILE} is damaged: its labels have the mean "
                        f"{str(mean)[:40]} and the deviation {str(deviation)[:40]}")
    if kind == Regression.name:
        return Regression(mean, deviation)
    return MultiLabel(labels, separator) if kind == MultiLabel.name else SingleLabel(labels, name=kind)


def of_names(labels: Sequence[str], kind: Optional[str], num_outputs: int, flag: str) -> Kind:
    """The type of labels that the user names, for a classifier of other code.

    Args:
        labels: in the order of the model's outputs; none for a regression.
        kind: one of `task_json.LABEL_TYPES`; None: a single label of several, or else a regression.
        flag: the flag that gives the labels, for messages.
    """
    kind = kind or (Regression.name if num_outputs == 1 and not labels else SingleLabel.name)
    is_regression = kind == Regression.name
    if len(labels) != (0 if is_regression else num_outputs) or is_regression and num_outputs != 1:
        raise UserError(f"{flag} names {len(labels)} labels, and the classifier has {num_outputs} "
                        "outputs (output_bias): name each of them, in their order; a regression "
                        "has one output and no labels")
    return _of_names(kind, labels, flag)


def from_huggingface(config: Mapping[str, Any], path: str, num_outputs: int) -> Kind:
    """The type of the labels of a Hugging Face classifier.

    Args:
        config: the content of config.json, which may not name the labels.
        num_outputs: the outputs of the classifier's head.
    """
    labels = names_in(config, path, num_outputs)
    problem = config.get("problem_type")
    kinds = {None: Regression.name if len(labels) == 1 else SingleLabel.name,  # as in transformers
             **{theirs: ours for ours, theirs in _PROBLEMS.items()}}
    if problem not in list(kinds):
        raise UserError(f"{path}: problem_type is {problem!r}; can be converted: "
                        f"{', '.join(_PROBLEMS.values())}")
    own = config.get(_KIND)
    kind = own if own in task_json.OWN_CLASSIFIERS else kinds[problem]
    if kind == Regression.name and len(labels) != 1:
        raise UserError(f"{path}: a regression to {len(labels)} numbers; here it is to one")
    return _of_names(kind, labels, f"{path}: id2label")


def names_in(config: Mapping[str, Any], path: str, num_outputs: int) -> List[str]:
    """The names of a Hugging Face model's outputs, in their order."""
    names = config.get("id2label", {str(i): name for i, name in enumerate(written_labels.unnamed(num_outputs))})
    if not isinstance(names, dict) or not names or set(names) != set(map(str, range(len(names)))):
        raise UserError(f"{path}: id2label is no map from 0, 1, 2 … to labels")
    return [str(names[str(index)]) for index in range(len(names))]


def to_huggingface(kind: Kind) -> Dict[str, Any]:
    """The entries of a Hugging Face config that describe the labels."""
    return {**({_KIND: kind.name} if kind.name in task_json.OWN_CLASSIFIERS else {}),
            "problem_type": _PROBLEMS.get(kind.name, _PROBLEMS[SingleLabel.name]),
            **entries_of(kind.labels or ["LABEL_0"])}  # a regression's, as transformers has it


def entries_of(names: Sequence[str]) -> Dict[str, Any]:
    """The entries of a Hugging Face config that name a model's outputs."""
    return {"id2label": {str(index): name for index, name in enumerate(names)},
            "label2id": {name: index for index, name in enumerate(names)}}


def _of_names(kind: str, names: Sequence[str], where: str) -> Kind:
    labels = [name.strip() for name in names]
    check_labels(labels, where)
    if kind == Regression.name:
        return Regression()
    if kind != MultiLabel.name:
        return SingleLabel(labels, name=kind)
    free = [each for each in _SEPARATORS if not any(each in label for label in labels)]
    if not free:
        raise UserError(f"{where}: every separator ({' '.join(_SEPARATORS)}) is in some label, and "
                        "an example may have several")
    return MultiLabel(labels, free[0])


def check_labels(labels: Sequence[str], where: str) -> None:
    """Raises a UserError if the labels cannot be told apart in files with a prediction a line."""
    if not all(labels):
        raise UserError(f"{where} has an empty label")
    broken = next((label for label in labels if not LINE_CHARACTERS.isdisjoint(label)), None)
    if broken is not None:
        raise UserError(f"{where} has the label {broken[:40]!r}: a label must not have a tab or a "
                        "line end, as predictions are columns and lines")
    if len(set(labels)) < len(labels):
        raise UserError(f"{where} has the same label twice: {', '.join(labels[:20])}")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities [n, classes], in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _listed(labels: Sequence[str]) -> str:
    if len(labels) <= 20:
        return ", ".join(labels)
    return f"{', '.join(labels[:20])} ... ({len(labels):,} labels)"

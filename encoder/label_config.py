"""Reads task.json, the description of a trained model, and converts labels from and to Hugging Face.

This module knows the entries of classifiers as plain JSON; `runs/label_types.py` knows what labels mean for a
training, and `runs/kinds.py` which other kinds of models there are.
"""

import math
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from engine.disk import files
from engine.errors import UserError

FILE = "task.json"
LABELS = "labels.json"  # of an export whose description has none, in the order of the outputs

# Kind of the labels → Hugging Face's name of it.
_PROBLEMS = {"classes": "single_label_classification",
             "multi_label": "multi_label_classification",
             "regression": "regression"}
KINDS = tuple(_PROBLEMS)
SCORER = "scorer"  # a classifier with two classes: whether a phrase fits a slot of a text
SIMILARITY = "similarity"  # gives each text a vector
CLASSIFIERS = (*KINDS, SCORER)
_ENTRIES = {"kind": str, "do_lower_case": bool, "max_seq_length": int}  # of any model
_LABEL_ENTRIES = {"labels": list, "label_separator": str, "takes_pairs": bool}
_ANY_LABEL = re.compile(r"LABEL_\d+")  # what transformers calls a label that it has no name for
_SEPARATORS = (",", ";", "|", "#")
LINE_CHARACTERS = frozenset("\t\r\n")  # that end a column or a line of predictions


def read(folder: str) -> Optional[Dict[str, Any]]:
    """The description of the model in a folder; None if there is none."""
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    description = files.read_record(path, "the model's description", _ENTRIES)
    if description["kind"] in CLASSIFIERS:
        _check_labels_of(files.read_record(path, "the classifier's description", _LABEL_ENTRIES),
                         path)
    return description


def _check_labels_of(description: Mapping[str, Any], path: str) -> None:
    kind, labels = description["kind"], description["labels"]
    if not all(isinstance(label, str) for label in labels) or (kind != "regression") != bool(labels):
        raise UserError(f"{path} is damaged: its labels are {str(labels)[:40]}")
    check_labels(labels, path)
    if kind == "multi_label" and not description["label_separator"]:
        raise UserError(f"{path} is damaged: it has no label_separator")
    mean, deviation = scale(description)
    if not (type(mean) in (int, float) and type(deviation) in (int, float)
            and math.isfinite(mean) and 0 < deviation < math.inf):
        raise UserError(f"{path} is damaged: its labels have the mean {str(mean)[:40]} and the "
                        f"deviation {str(deviation)[:40]}")


def require_classifier(description: Mapping[str, Any], where: str) -> None:
    """Raises a UserError if the description is not that of a classifier.

    Args:
        where: the model that it describes, for the message.
    """
    if description["kind"] not in CLASSIFIERS:
        raise UserError(f"{where} is no classifier of texts: its {FILE} names the kind "
                        f"{description['kind']!r}, and classifiers are of one of "
                        f"{', '.join(CLASSIFIERS)}")


def scale(description: Mapping[str, Any]) -> Tuple[float, float]:
    """Mean and deviation of the labels of a regression, which learns (label - mean) / deviation."""
    return description.get("mean", 0.0), description.get("deviation", 1.0)


def names_labels(description: Mapping[str, Any]) -> bool:
    """Whether the labels have names of their own, not only those that transformers gives to all."""
    labels = description.get("labels")
    return not labels or any(not _ANY_LABEL.fullmatch(label) for label in labels)


def num_outputs(description: Mapping[str, Any]) -> Optional[int]:
    """The number of a classifier's outputs: its classes, or 1 for a regression; else None."""
    return (len(description["labels"]) or 1) if description["kind"] in CLASSIFIERS else None


def to_huggingface(description: Mapping[str, Any], where: str) -> Dict[str, Any]:
    """The entries of a Hugging Face config that describe the labels of the model in `where`."""
    require_classifier(description, where)
    labels = description["labels"] or ["LABEL_0"]  # a regression's, as transformers has it
    kind = description["kind"]
    # transformers has no name for a scorer: an entry of our own keeps the kind.
    return {**({"kind": kind} if kind == SCORER else {}),
            "problem_type": _PROBLEMS["classes" if kind == SCORER else kind],
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)}}


def from_huggingface(config: Mapping[str, Any], path: str, num_outputs: int) -> Dict[str, Any]:
    """The entries of a description that say the labels of a Hugging Face classifier.

    Args:
        config: the content of config.json, which may not name the labels.
        num_outputs: the outputs of the classifier's head.
    """
    names = config.get("id2label", {str(i): f"LABEL_{i}" for i in range(num_outputs)})
    labels = _labels(names, path)
    kind = (SCORER if config.get("kind") == SCORER
            else _kind(config.get("problem_type"), len(labels), path))
    return _entries(kind, labels, path)


def of_labels(labels: Sequence[str], kind: Optional[str], num_outputs: int,
              flag: str) -> Dict[str, Any]:
    """The entries of a description for a classifier whose labels the user names.

    Args:
        labels: in the order of the model's outputs; none for a regression.
        kind: one of KINDS; None: a single label of several, or else a regression.
        flag: the flag that gives the labels, for messages.
    """
    kind = kind or ("regression" if num_outputs == 1 and not labels else "classes")
    expected = 0 if kind == "regression" else num_outputs
    if len(labels) != expected or kind == "regression" and num_outputs != 1:
        raise UserError(f"{flag} names {len(labels)} labels, and the classifier has {num_outputs} "
                        "outputs (output_bias): name each of them, in their order; a regression "
                        "has one output and no labels")
    names = [label.strip() for label in labels]
    check_labels(names, flag)
    return _entries(kind, names, flag)


def _entries(kind: str, labels: List[str], where: str) -> Dict[str, Any]:
    return {"kind": kind, "labels": [] if kind == "regression" else labels,
            "label_separator": _separator(labels, where) if kind == "multi_label" else ""}


def _labels(names: Any, path: str) -> List[str]:
    if not isinstance(names, dict) or not names or set(names) != set(map(str, range(len(names)))):
        raise UserError(f"{path}: id2label is no map from 0, 1, 2 … to labels")
    labels = [str(names[str(index)]).strip() for index in range(len(names))]
    check_labels(labels, f"{path}: id2label")
    return labels


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


def _kind(problem: Any, num_labels: int, path: str) -> str:
    default = "regression" if num_labels == 1 else "classes"  # as in transformers
    kinds = {None: default, **{theirs: ours for ours, theirs in _PROBLEMS.items()}}
    if problem not in list(kinds):
        raise UserError(f"{path}: problem_type is {problem!r}; can be converted: "
                        f"{', '.join(_PROBLEMS.values())}")
    kind = kinds[problem]
    if kind == "regression" and num_labels != 1:
        raise UserError(f"{path}: a regression to {num_labels} numbers; here it is to one")
    return kind


def _separator(labels: List[str], path: str) -> str:
    """A separator that occurs in none of the labels."""
    free = [separator for separator in _SEPARATORS
            if not any(separator in label for label in labels)]
    if not free:
        raise UserError(f"{path}: every separator ({' '.join(_SEPARATORS)}) is in some label, and "
                        "an example may have several")
    return free[0]

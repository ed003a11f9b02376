"""The description of a trained classifier's labels, and its counterpart in Hugging Face's config.

`task.json` is plain JSON here; what the labels mean for training is in tasks/label_types.py.
"""

import os
from typing import Any, Dict, List, Mapping, Optional

from engine import files
from engine.errors import UserError

FILE = "task.json"
ARCHITECTURE = "BertForSequenceClassification"

# Kind of the labels → Hugging Face's name of it.
_PROBLEMS = {"classes": "single_label_classification",
             "multi_label": "multi_label_classification",
             "regression": "regression"}
_ENTRIES = {"kind": str, "labels": list, "label_separator": str, "takes_pairs": bool,
            "do_lower_case": bool, "max_seq_length": int}
_SEPARATORS = (",", ";", "|", "\t")


def read(folder: str) -> Optional[Dict[str, Any]]:
    """The description of the classifier in a folder; None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    description = files.read_record(path, "the classifier's description", _ENTRIES)
    kind, labels = description["kind"], description["labels"]
    if kind not in _PROBLEMS:
        raise UserError(f"{path} names no kind of label ({', '.join(_PROBLEMS)})")
    if not all(isinstance(label, str) for label in labels) or (kind != "regression") != bool(labels):
        raise UserError(f"{path} is damaged: its labels are {str(labels)[:40]}")
    if kind == "multi_label" and not description["label_separator"]:
        raise UserError(f"{path} is damaged: it has no label_separator")
    return description


def num_outputs(description: Mapping[str, Any]) -> int:
    """The number of the model's outputs: its classes, or 1 for a regression."""
    return len(description["labels"]) or 1


def to_huggingface(description: Mapping[str, Any]) -> Dict[str, Any]:
    """The entries of a Hugging Face config that describe the labels."""
    labels = description["labels"] or ["LABEL_0"]  # a regression's, as transformers has it
    return {"problem_type": _PROBLEMS[description["kind"]],
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)}}


def from_huggingface(config: Mapping[str, Any], path: str, *, takes_pairs: bool,
                     do_lower_case: bool, max_seq_length: int) -> Optional[Dict[str, Any]]:
    """The description of a Hugging Face classifier; None if the model is not a classifier.

    Raises:
        UserError: its labels are not numbered 0, 1, 2 …, or their kind is not supported.
    """
    if ARCHITECTURE not in (config.get("architectures") or ()):
        return None
    labels = _labels(config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"}), path)
    kind = _kind(config.get("problem_type"), len(labels), path)
    return {"kind": kind, "labels": [] if kind == "regression" else labels,
            "label_separator": _separator(labels, path) if kind == "multi_label" else "",
            "takes_pairs": takes_pairs, "do_lower_case": do_lower_case,
            "max_seq_length": max_seq_length}


def _labels(names: Any, path: str) -> List[str]:
    try:
        by_index = {int(index): str(name).strip() for index, name in names.items()}
    except (AttributeError, ValueError) as error:
        raise UserError(f"{path}: id2label is no map from 0, 1, 2 … to labels") from error
    labels = [by_index[index] for index in sorted(by_index)]
    if not labels or sorted(by_index) != list(range(len(labels))) or not all(labels):
        raise UserError(f"{path}: id2label is no map from 0, 1, 2 … to labels")
    if len(set(labels)) < len(labels):
        raise UserError(f"{path}: id2label has the same label twice: {', '.join(labels[:20])}")
    return labels


def _kind(problem: Optional[str], num_labels: int, path: str) -> str:
    if problem is None:  # transformers' default
        return "regression" if num_labels == 1 else "classes"
    kinds = {theirs: ours for ours, theirs in _PROBLEMS.items()}
    if problem not in kinds:
        raise UserError(f"{path}: problem_type is {problem!r}; can be converted: {sorted(kinds)}")
    kind = kinds[problem]
    if kind == "regression" and num_labels != 1:
        raise UserError(f"{path}: a regression to {num_labels} numbers; here it is to one")
    return kind


def _separator(labels: List[str], path: str) -> str:
    """A separator that occurs in none of the labels."""
    free = [separator for separator in _SEPARATORS
            if not any(separator in label for label in labels)]
    if not free:
        raise UserError(f"{path}: every separator ({' '.join(_SEPARATORS[:3])} and tab) is in some "
                        "label, and an example may have several")
    return free[0]

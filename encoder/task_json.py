"""task.json, the description of a trained model: its kind, and what opens a model of this kind again.

A classifier has the entries of its labels (`encoder/label_types.py`); each other capability knows its own
entries. `runs/kinds.py` has the class of each kind.
"""

import os
from typing import Any, Dict, Mapping, Optional, Sequence

from engine.disk import files

FILE = "task.json"
LABELS = "labels.json"  # of an export whose description has none, in the order of the outputs

# The names of the kinds: classifiers of texts by the type of their labels, and the others.
CLASSES, MULTI_LABEL, REGRESSION = LABEL_TYPES = ("classes", "multi_label", "regression")
SCORER = "scorer"  # a classifier with two classes: whether a phrase fits a slot of a text
SIMILARITY = "similarity"  # gives each text a vector
ANSWERS = "answers"
TAGS = "tags"  # of words
CHOICE = "multiple_choice"  # the right one among the choices of a question
OF_CHOOSER = {"kind": CHOICE}  # its entries
OWN_CLASSIFIERS = (SCORER,)  # which Hugging Face has no name for

_ENTRIES = {"kind": str, "do_lower_case": bool, "max_seq_length": int}  # of any model
_LABEL_ENTRIES = {"labels": list, "label_separator": str, "takes_pairs": bool}


def read(folder: str, entries: Mapping[str, Any] = {}, defaults: Mapping[str, Any] = {}
         ) -> Optional[Dict[str, Any]]:
    """The description of the model in a folder; None if there is none.

    Args:
        entries: those that it must have beside the common ones → their types.
        defaults: of entries that an earlier version did not write.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    description = files.read_record(path, "the model's description", {**_ENTRIES, **entries}, defaults)
    if description["kind"] in LABEL_TYPES or is_classifier(description):
        files.read_record(path, "the classifier's description", _LABEL_ENTRIES)
    return description


def write(folder: str, entries: Mapping[str, Any], do_lower_case: bool, max_seq_length: int) -> None:
    """Writes the description of a model.

    Args:
        entries: its kind, and those of the kind.
    """
    files.write_json(os.path.join(folder, FILE), {
        **entries, "do_lower_case": do_lower_case, "max_seq_length": max_seq_length})


def of_tagger(types: Sequence[str], scheme: str, crf: bool, own_tags: Sequence[str] = ()) -> Dict[str, Any]:
    """The entries of a tagger of words; see `tag_set.TagSet`."""
    return {"kind": TAGS, "types": list(types), "scheme": scheme, "crf": crf,
            **({"own_tags": list(own_tags)} if own_tags else {})}


def of_reader(settings: Mapping[str, Any] = {}) -> Dict[str, Any]:
    """The entries of a model that finds answers; what its settings lack has its default."""
    return {"kind": ANSWERS, **settings}


def is_tagger(description: Mapping[str, Any]) -> bool:
    """Whether the description has the entries of `of_tagger`."""
    return description.get("kind") == TAGS


def is_reader(description: Mapping[str, Any]) -> bool:
    """Whether the description has the entries of `of_reader`."""
    return description.get("kind") == ANSWERS


def is_chooser(description: Mapping[str, Any]) -> bool:
    """Whether the description has the entries of OF_CHOOSER."""
    return description.get("kind") == CHOICE


def is_classifier(description: Mapping[str, Any]) -> bool:
    """Whether the description is that of a classifier or a regression, which has labels or none."""
    return "labels" in description


def of_vectors(pooling: str, query_prefix: str, matryoshka: Sequence[int]) -> Dict[str, Any]:
    """The entries of a model that gives texts vectors."""
    return {"kind": SIMILARITY, "pooling": pooling, "query_prefix": query_prefix,
            "matryoshka": list(matryoshka)}


def gives_vectors(description: Mapping[str, Any]) -> bool:
    """Whether the description has the entries of `of_vectors`."""
    return description.get("kind") == SIMILARITY

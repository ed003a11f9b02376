"""The kinds of trained models, and the module that serves each: only this table names capabilities.

The file `task.json` of a model folder names the kind of its model. A module is loaded on use, so that
a command which takes any trained model serves it without importing the others. It has a function

    open_model(model_dir: str) -> Model

which raises a UserError that begins with --output_dir=... if the folder's files do not fit together.
A new kind is a row of the table and such a function; `save_description` of its trainings writes
`task.json` with "kind", "do_lower_case", "max_seq_length", and whatever else `open_model` needs.
"""

import importlib
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from encoder import model_files
from engine.data.batches import Source
from engine.errors import UserError
from engine.model import Forward
from tasks import label_types
from tasks.examples import Example

ANSWERS = "answers"
TAGS = "tags"  # of words

_MODULES = {
    label_types.SingleLabel.name: "tasks.classification",
    label_types.MultiLabel.name: "tasks.classification",
    label_types.Regression.name: "tasks.classification",
    ANSWERS: "reading.reader",
    TAGS: "tagging.tagger",
    label_types.Scorer.name: "rewriting.scorer",
}


class Result(NamedTuple):
    """What is predicted for a text."""
    fields: Sequence[str]  # the columns of a line
    entry: Dict[str, Any]  # the same as a JSON object


AnyResult = Union[Result, str]  # or why the model cannot read the text


class Encoded(NamedTuple):
    """Some texts as the model reads them: any number of records for each text."""
    source: Source
    # (predictions for all records, each [n, ...]) → a result for each text, in order.
    decode: Callable[[Dict[str, np.ndarray]], Iterable[AnyResult]]
    num_cut: int = 0  # the texts that are longer than the model's input


class Model(NamedTuple):
    """A trained model that reads texts, except its variables."""
    forward: Forward
    encode: Callable[[List[Example]], Encoded]
    takes_pairs: bool  # whether it reads two texts at a time
    columns: Sequence[str]  # the names of the fields of a result
    # (texts that are longer than the input, all texts) → what became of them, for a log line.
    # None for a model that reads texts of any length as a whole.
    describe_cut: Optional[Callable[[int, int], str]] = None


def module_of(kind: str) -> ModuleType:
    """The module that serves a kind of model."""
    return importlib.import_module(_MODULES[kind])


def open_model(model_dir: str) -> Model:
    """Opens the output directory of a training, or an export.

    Raises:
        UserError: it holds no trained model, or one that reads something else than texts.
    """
    model = model_files.open_model(model_dir, "--output_dir")
    description = model.description()
    # A model without a description is one that other code has fine-tuned.
    kind = description["kind"] if description else label_types.SingleLabel.name
    if kind not in _MODULES:
        raise UserError(f"--output_dir={model_dir}: its task.json names the kind {kind!r}; kinds of "
                        f"models are {', '.join(_MODULES)}")
    return module_of(kind).open_model(model_dir)

"""The kinds of trained models, and the head of each: only this table names capabilities.

The file `task.json` of a model folder names the kind of its model. A head is loaded on use, so that
a command which takes any trained model serves it without importing the others. A new kind is a row
of the table, whose module has the `HEAD`.
"""

import importlib
from typing import Tuple

from encoder import label_config, model_files
from encoder.model_files import ModelFiles
from engine.errors import UserError
from runs import tries
from runs.head import Head, Reader

ANSWERS = "answers"
TAGS = "tags"  # of words

_MODULES = {
    **dict.fromkeys(label_config.KINDS, "tasks.head"),
    label_config.SCORER: "rewriting.scorer",
    label_config.SIMILARITY: "similarity.head",
    ANSWERS: "reading.head",
    TAGS: "tagging.head",
}

# Kinds with labels of no task, or without labels → the command that trains and evaluates them.
COMMANDS = {label_config.SCORER: "python -m rewriting.run",
            label_config.SIMILARITY: "python -m similarity.run"}


def head_of(kind: str) -> Head:
    """The head of a kind of model."""
    return importlib.import_module(_MODULES[kind]).HEAD


def open_reader(model_dir: str, flag: str = "--output_dir") -> Tuple[ModelFiles, Reader]:
    """Opens the output directory of a training, or an export, to read texts with the model.

    Args:
        flag: that names the directory, for errors.

    Raises:
        UserError: it holds no trained model, or one that reads something else than texts.
    """
    trained = model_files.open_model(model_dir, flag)
    description = trained.description()
    # A model without a description is one that other code has fine-tuned.
    kind = description["kind"] if description else label_config.KINDS[0]
    if kind not in _MODULES:
        raise UserError(f"{flag}={model_dir}: its task.json names the kind {kind!r}; kinds of "
                        f"models are {', '.join(_MODULES)}")
    head = head_of(kind)
    if not head.reader:
        raise UserError(f"{flag}={model_dir}: a model of the kind {kind!r} reads no plain texts")
    model = head.open(trained)
    tries.warn_of_ensemble(model_dir)
    return trained, head.reader(model)._replace(report=model.encoding.report)

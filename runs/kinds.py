"""The kinds of trained models, and the class of each: only this table names capabilities.

The file `task.json` of a model folder names the kind of its model (`encoder/task_json.py` has the
names). A class is loaded on use, so that a command which takes any trained model serves it without
importing the others. A new kind is a name and a row of the table: a module and its class.
"""

import importlib
from typing import Optional, Tuple, Type

from encoder import model_files, task_json
from encoder.model_files import ModelFiles
from engine.errors import UserError
from engine.training import run_record
from runs import tries
from runs.capability import Capability, Reader

CLASSES = {
    **dict.fromkeys(task_json.LABEL_TYPES, "tasks.capability.Classifier"),
    task_json.SCORER: "rewriting.scorer.PhraseScorer",
    task_json.SIMILARITY: "similarity.capability.TextEncoder",
    task_json.ANSWERS: "reading.capability.AnswerFinder",
    task_json.TAGS: "tagging.capability.EntityTagger",
    task_json.CHOICE: "choice.capability.Chooser",
}

# Kinds with labels of no task, or without labels → the command that trains and evaluates them.
COMMANDS = {task_json.SCORER: "python -m rewriting.run",
            task_json.SIMILARITY: "python -m similarity.run"}


def class_of(kind: str) -> Type[Capability]:
    """The class of a kind of model."""
    module, _, name = CLASSES[kind].rpartition(".")
    return getattr(importlib.import_module(module), name)


def model_in(trained: ModelFiles, needed: Optional[Type[Capability]] = None) -> Capability:
    """The model in a folder, of the kind that is needed or that its task.json names, as its training left it."""
    description = trained.description()
    # A model without a description is one that other code has fine-tuned.
    kind = description["kind"] if description else task_json.CLASSES
    if not needed and kind not in CLASSES:
        raise UserError(f"{trained.flag}={trained.path}: its task.json names the kind {kind!r}; kinds of "
                        f"models are {', '.join(CLASSES)}")
    model = (needed or class_of(kind)).open(trained)
    run_record.check_model(trained.folder, f"{trained.flag}={trained.path}", model.facts())
    return model


def open_reader(model_dir: str, flag: str = "--output_dir") -> Tuple[ModelFiles, Reader]:
    """Opens the output directory of a training, or an export, to read texts with the model.

    Args:
        flag: that names the directory, for errors.
    """
    trained = model_files.open_folder(model_dir, flag)
    model = model_in(trained)
    tries.warn_of_ensemble(model_dir)
    return trained, model.reader()._replace(report=model.encoding.report)

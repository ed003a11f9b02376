"""Loads the description of a trained classifier, so that it can be used without its flags.

The description is beside the checkpoints, or in the assets of an export: `task.json` (the labels
and the settings of tokenization), `vocab.txt` and `bert_config.json`.
"""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from encoder import label_config, long_texts, model_files
from encoder.encoding import Encoding
from engine import log
from engine.checkpoints import checkpoints
from engine.errors import UserError
from modeling import BertConfig
from runs import columns, label_types
from tasks.table import Task

_COLUMNS = "columns"
# What stands for a label in predict.txt.
NAME, INDEX = LABEL_FORMS = ("name", "index")


class Classification(NamedTuple):
    """What is classified."""
    kind: label_types.Kind  # of the labels
    takes_pairs: bool = False  # whether a text has a second one
    trained_columns: Optional[columns.Trained] = None  # in a user's training file
    # A trained model is not of a task.
    task_name: str = ""
    task: Optional[Task] = None
    data_dir: str = ""  # the directory that the task's files are relative to
    predict_labels: str = NAME


def entries(takes_pairs: bool, trained_columns: Optional[columns.Trained]) -> Dict[str, Any]:
    """What the description of a model says of its training set."""
    found: Dict[str, Any] = {"takes_pairs": takes_pairs}
    return {**found, _COLUMNS: trained_columns._asdict()} if trained_columns else found


def load(model_dir: str, flag: str = "--output_dir"
         ) -> Tuple[Classification, BertConfig, Encoding]:
    """What a classifier in a folder classifies, and its encoder.

    Args:
        model_dir: the output directory of a training, an export, or a converted classifier.
        flag: the flag that `model_dir` comes from, for error messages.
    """
    model = model_files.open_folder(model_dir, flag, model_files.CLASSIFIER)
    description = model.description()
    if not description:
        raise model_files.unknown_labels(model)
    found = _classification(description, f"{flag}={model_dir}")
    _check_length(description["max_seq_length"], model)
    encoding = model.encoding(description["max_seq_length"])._replace(
        long_texts=long_texts.of_description(description))
    model_files.check_outputs(model.checkpoint, found.kind.num_outputs, flag)
    return found, model.config(), encoding


def _check_length(max_seq_length: int, model: model_files.ModelFiles) -> None:
    positions = model.config().max_position_embeddings
    if not 3 <= max_seq_length <= positions:
        raise UserError(f"{model.folder}: {label_config.FILE} has max_seq_length {max_seq_length}, and "
                        f"the model has {positions} positions: one of the files is not of this model")


def saved(path: str) -> Optional[Classification]:
    """What a trained model says that it classifies; None if it does not.

    Args:
        path: the output directory of a training, an export, or the prefix of a checkpoint.
    """
    folder = model_files.folder_of(path)
    if folder == path and not checkpoints.latest(path):
        return None
    description = label_config.read(folder)
    return _classification(description, path) if description else None


def kind_of(checkpoint: checkpoints.Checkpoint, kind: label_types.Kind) -> label_types.Kind:
    """The task's kind of labels; of a regression, with the mean and deviation that the model learned."""
    if kind.labels:
        return kind
    description = label_config.read(model_files.folder_of(checkpoint.path))
    if description is None:
        log.warn(f"{checkpoint.path} has no {label_config.FILE} beside it, which says the unit of a "
                 "regression's numbers: they are taken as its output layer gives them")
    return label_types.Regression(*label_config.scale(description or {}))


def check_labels_beside(checkpoint: checkpoints.Checkpoint, task_kind: label_types.Kind,
                        flag: str) -> None:
    """Raises a UserError if the folder of a checkpoint names other labels than the task's."""
    description = label_config.read(model_files.folder_of(checkpoint.path))
    if description:
        kind = label_types.from_json(description, f"{flag}={checkpoint.path}")
        if kind.labels and label_config.names_labels(description):
            check_labels(kind, task_kind, checkpoint.path, flag)


def check_labels(kind: label_types.Kind, task_kind: label_types.Kind, path: str, flag: str) -> None:
    """Raises a UserError if a classifier in `path` predicts other labels than the task's."""
    if (kind.name, kind.labels) != (task_kind.name, task_kind.labels):
        raise UserError(f"{flag}={path} predicts {_brief(kind)}, and the task has "
                        f"{_brief(task_kind)}; they must be of the same task")


def _brief(kind: label_types.Kind) -> str:
    return f"the labels {', '.join(kind.labels[:20])} ({kind.name})" if kind.labels else "numbers"


def _classification(description: Mapping[str, Any], where: str) -> Classification:
    kind = label_types.from_json(description, where)
    entry = description.get(_COLUMNS)
    return Classification(kind, description["takes_pairs"],
                          entry and columns.of_description(entry, where))

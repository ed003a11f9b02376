"""What a trained classifier classifies, from the description (task.json) in its folder."""

from typing import Any, Mapping, NamedTuple, Optional, Tuple

from encoder import label_types, long_texts, model_files, task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints import checkpoints
from modeling import BertConfig
from runs import columns
from tasks.table import Task

COLUMNS = "columns"  # the entry with `Classification.trained_columns`
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
    predict_labels: str = NAME


def load(trained: ModelFiles) -> Tuple[Classification, BertConfig, Encoding]:
    """What a classifier in a folder classifies, and its encoder."""
    model_files.require_labels(trained)
    description, config = trained.description(), trained.config()
    classification = _classification(description, f"{trained.flag}={trained.path}")
    encoding = trained.encoding(description["max_seq_length"])._replace(long_texts=long_texts.of_description(description))
    model_files.check_outputs(trained.checkpoint, classification.kind.num_outputs, trained.flag)
    return classification, config, encoding


def saved(path: str) -> Optional[Classification]:
    """What a trained model says that it classifies; None if it does not.

    Args:
        path: the output directory of a training, an export, or the prefix of a checkpoint.
    """
    description = task_json.read(model_files.folder_of(path))
    return _classification(description, path) if description else None


def kind_of(checkpoint: checkpoints.Checkpoint, kind: label_types.Kind) -> label_types.Kind:
    """The task's kind of labels; of a regression, with the mean and deviation that the model learned."""
    if kind.labels:
        return kind
    description = task_json.read(model_files.folder_of(checkpoint.path))
    if description is None:
        log.warn(f"{checkpoint.path} has no {task_json.FILE} beside it, which says the unit of a "
                 "regression's numbers: they are taken as its output layer gives them")
        return label_types.Regression()
    learned = label_types.of_description(description, checkpoint.path)
    return label_types.Regression(learned.mean, learned.deviation)


def _classification(description: Mapping[str, Any], where: str) -> Classification:
    entry = description.get(COLUMNS)
    return Classification(label_types.of_description(description, where), description["takes_pairs"],
                          entry and columns.of_description(entry, where))

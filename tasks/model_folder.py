"""Saves and loads the description of a trained model, so that it can be used without its flags.

The description is beside the checkpoints, or in the assets of an export: `task.json` (the labels
and the settings of tokenization), `vocab.txt` and `bert_config.json`.
"""

import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from encoder import label_config, long_texts, model_files, vocabulary
from encoder.encoding import Encoding
from engine import checkpoints, files
from engine.errors import UserError
from engine.training import run_record
from modeling import BertConfig
from tasks import columns, label_types
from tasks.data import TrainingSet

FILES = _TASK, _VOCAB, _CONFIG = label_config.FILE, vocabulary.FILE, model_files.CONFIG

# The name of the labels in a run's record.
LABEL_SET = "label set"

_COLUMNS = "columns"


class Labels(NamedTuple):
    """The labels of a classifier, and where they and the texts were in its training file."""
    kind: label_types.Kind
    takes_pairs: bool  # whether a text has a second one
    trained_columns: Optional[columns.Trained] = None  # of a user's file


class TrainedModel(NamedTuple):
    """All that is needed to predict with a model, except its variables."""
    kind: label_types.Kind  # of its labels
    takes_pairs: bool
    config: BertConfig
    encoding: Encoding
    trained_columns: Optional[columns.Trained] = None  # of a user's file that it was trained on

    @property
    def labels(self) -> Labels:
        """Its labels, for the task that it is used on."""
        return Labels(self.kind, self.takes_pairs, self.trained_columns)


def save(output_dir: str, training_set: TrainingSet, config: BertConfig, encoding: Encoding,
         trained_columns: Optional[columns.Trained] = None) -> None:
    """Writes the description of a model into its directory, before it is trained on this set."""
    write(output_dir, Labels(training_set.kind, training_set.has_pairs, trained_columns), config,
          encoding)


def write(output_dir: str, labels: Labels, config: BertConfig, encoding: Encoding) -> None:
    """Writes the description of a classifier beside its checkpoints."""
    model_files.save(output_dir, config, encoding.vocab_file, encoding.do_lower_case)
    cut = encoding.long_texts.facts()
    files.write_json(os.path.join(output_dir, _TASK), {
        **label_types.to_json(labels.kind),
        "takes_pairs": labels.takes_pairs,
        "do_lower_case": encoding.do_lower_case,
        "max_seq_length": encoding.max_seq_length,
        **({long_texts.ENTRY: cut} if cut else {}),
        **({_COLUMNS: labels.trained_columns._asdict()} if labels.trained_columns else {})})


def load(model_dir: str, flag: str = "--output_dir",
         labels: Optional[Labels] = None) -> TrainedModel:
    """Reads what `save` wrote.

    Args:
        model_dir: the output directory of a training, an export, or a converted classifier.
        flag: the flag that `model_dir` comes from, for error messages.
        labels: those of the task, for a classifier whose folder does not say them.

    Raises:
        UserError: the description is missing, or does not fit the checkpoint.
    """
    model = model_files.open_model(model_dir, flag, model_files.CLASSIFIER)
    description = model.description()
    if description:
        labels = _labels(description, f"{flag}={model_dir}")
        _check_record(labels.kind, model)
        _check_length(description["max_seq_length"], model)
        encoding = model.encoding(description["max_seq_length"])._replace(
            long_texts=long_texts.of_description(description))
    elif labels:
        encoding = model.encoding(model.config().max_position_embeddings)
    else:
        raise model_files.unknown_labels(model)
    model_files.check_outputs(model.checkpoint, labels.kind.num_outputs, flag)
    return TrainedModel(labels.kind, labels.takes_pairs, model.config(), encoding,
                        labels.trained_columns)


def label_set(kind: label_types.Kind) -> Sequence[str]:
    """The labels as a run's record has them."""
    return [*kind.labels, f"separated by {kind.separator}"] if kind.separator else kind.labels


def _check_record(kind: label_types.Kind, model: model_files.ModelFiles) -> None:
    """Raises a UserError if the model was trained with these labels in another order."""
    record = run_record.load(model.folder)
    now, trained = list(label_set(kind)), record.facts.get(LABEL_SET) if record else None
    if isinstance(trained, list) and trained != now and sorted(map(str, trained)) == sorted(now):
        raise UserError(f"{model.folder}: {_TASK} has the labels {', '.join(now[:20])}, and the "
                        f"model was trained with {', '.join(trained[:20])} (run.json): their order "
                        "is that of its outputs; put it right")


def _check_length(max_seq_length: int, model: model_files.ModelFiles) -> None:
    positions = model.config().max_position_embeddings
    if not 3 <= max_seq_length <= positions:
        raise UserError(f"{model.folder}: {_TASK} has max_seq_length {max_seq_length}, and the "
                        f"model has {positions} positions: one of the files is not of this model")


def checkpoint_of(model_dir: str, flag: str = "--output_dir") -> checkpoints.Checkpoint:
    """The variables of an export, or the best or else the newest checkpoint of a training.

    Args:
        flag: the flag that `model_dir` comes from, for error messages.

    Raises:
        UserError: there is no checkpoint of a classifier.
    """
    return model_files.open_model(model_dir, flag, model_files.CLASSIFIER).checkpoint


def saved_labels(path: str) -> Optional[Labels]:
    """What a trained model says of its labels; None if they are not known.

    Args:
        path: the output directory of a training, an export, or the prefix of a checkpoint.
    """
    folder = model_files.folder_of(path)
    if folder == path and not checkpoints.latest(path):
        return None
    description = label_config.read(folder)
    return _labels(description, path) if description else None


def labels_beside(checkpoint: checkpoints.Checkpoint, flag: str) -> Optional[label_types.Kind]:
    """The labels that the folder of a checkpoint names; None if it does not.

    Raises:
        UserError: the folder, which the flag gives, is one of a model of another kind.
    """
    description = label_config.read(model_files.folder_of(checkpoint.path))
    if not description:
        return None
    kind = label_types.from_json(description, f"{flag}={checkpoint.path}")
    return kind if label_config.names_labels(description) and kind.labels else None


def check_labels(kind: label_types.Kind, task_kind: label_types.Kind, path: str, flag: str) -> None:
    """Raises a UserError if a classifier in `path` predicts other labels than the task's."""
    if kind.labels == task_kind.labels and kind.name != task_kind.name:
        raise UserError(f"{flag}={path} predicts the task's labels in another way: its {_TASK} has "
                        f'"kind": "{kind.name}", and the task is "{task_kind.name}"')
    if kind.labels != task_kind.labels:
        raise UserError(f"{flag}={path} predicts {_brief(kind)}, and the task has "
                        f"{_brief(task_kind)}; they must be of the same task")


def _brief(kind: label_types.Kind) -> str:
    return f"the labels {', '.join(kind.labels[:20])}" if kind.labels else "numbers"


def _labels(description: Mapping[str, Any], where: str) -> Labels:
    kind = label_types.from_json(description, where)
    entry = description.get(_COLUMNS)
    return Labels(kind, description["takes_pairs"], entry and columns.of_description(entry, where))

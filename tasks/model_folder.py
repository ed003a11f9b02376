"""Saves and loads the description of a trained model, so that it can be used without its flags.

The description is beside the checkpoints, or in the assets of an export: `task.json` (the labels
and the settings of tokenization), `vocab.txt` and `bert_config.json`.
"""

import os
import shutil
from typing import NamedTuple, Optional, Tuple

from encoder import label_config
from encoder.config import load_config
from encoder.encoding import Encoding, load_encoding
from engine import checkpoints, files, saved_model
from engine.errors import UserError
from modeling import BertConfig
from tasks import label_types
from tasks.data import TrainingSet

FILES = _TASK, _VOCAB, _CONFIG = label_config.FILE, "vocab.txt", "bert_config.json"


class TrainedModel(NamedTuple):
    """All that is needed to predict with a model, except its variables."""
    kind: label_types.Kind  # of its labels
    takes_pairs: bool
    config: BertConfig
    encoding: Encoding


def save(output_dir: str, training_set: TrainingSet, config: BertConfig,
         encoding: Encoding) -> None:
    """Writes the description of a model into its directory, before it is trained on this set."""
    save_encoder(output_dir, config, encoding)
    files.write_json(os.path.join(output_dir, _TASK), {
        **label_types.to_json(training_set.kind),
        "takes_pairs": training_set.has_pairs,
        "do_lower_case": encoding.do_lower_case,
        "max_seq_length": encoding.max_seq_length})


def save_encoder(output_dir: str, config: BertConfig, encoding: Encoding) -> None:
    """Writes `vocab.txt` and `bert_config.json`, which describe any model."""
    with files.atomic_path(os.path.join(output_dir, _VOCAB)) as temporary:
        shutil.copyfile(encoding.vocab_file, temporary)
    files.write_text(os.path.join(output_dir, _CONFIG), config.to_json_string())


def load(model_dir: str, flag: str = "--output_dir") -> TrainedModel:
    """Reads what `save` wrote.

    Args:
        model_dir: the output directory of a training, or an export.
        flag: the flag that `model_dir` comes from, for error messages.

    Raises:
        UserError: the description is missing.
    """
    is_export = saved_model.is_there(model_dir)
    folder = os.path.join(model_dir, saved_model.ASSETS) if is_export else model_dir
    values = label_config.read(folder)
    if values is None:
        raise UserError(f"{folder} holds no {_TASK}: {flag} must be the output directory of a "
                        "training, an export, or a converted classifier")
    config = load_config(os.path.join(folder, _CONFIG))
    encoding = load_encoding(
        os.path.join(folder, _VOCAB), do_lower_case=values["do_lower_case"],
        max_seq_length=values["max_seq_length"], vocab_size=config.vocab_size)
    return TrainedModel(label_types.from_json(values), values["takes_pairs"], config, encoding)


def checkpoint_of(model_dir: str, flag: str = "--output_dir") -> checkpoints.Checkpoint:
    """The variables of an export, or the best or else the newest checkpoint of a training.

    Args:
        flag: the flag that `model_dir` comes from, for error messages.

    Raises:
        UserError: there is no checkpoint.
    """
    if saved_model.is_there(model_dir):
        return saved_model.open_variables(model_dir)
    checkpoint = checkpoints.best(model_dir)
    if not checkpoint:
        raise UserError(f"{flag}={model_dir} holds no checkpoint: the model is not trained")
    return checkpoint


def saved_labels(directory: str) -> Optional[Tuple[label_types.Kind, bool]]:
    """The labels of a trained model and whether it takes pairs; None if there is no model."""
    values = label_config.read(directory)
    if values is None or not checkpoints.latest(directory):
        return None
    return label_types.from_json(values), values["takes_pairs"]

"""The files of a model folder: commands that make a model write them, commands that take one read them.

It holds `bert_config.json`, `vocab.txt`, the casing (`tokenizer_config.json`) and a checkpoint; a
fine-tuned model also `task.json`. What a command needs of a model is decided here,
from the files and the names of the variables alone, before any graph is built.
"""

import os
import shutil
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import numpy as np

import modeling
from encoder import huggingface, label_types, task_json, variables, vocabulary
from encoder.encoding import Encoding, load_encoding
from engine import log
from engine.checkpoints import checkpoints, saved_model
from engine.disk import files
from engine.errors import UserError
from engine.training import run_record

CONFIG = "bert_config.json"

OUTPUT_LAYER = ("output_weights", "output_bias")  # of a fine-tuned model
_MAX_LAYERS = 10_000  # each is a part of the graph, however small


class ModelFiles(NamedTuple):
    """A model and where its files are. Made by `open_folder`."""
    path: str  # as the user gave it
    flag: str  # that gave it
    folder: str  # of all files but the checkpoint's
    checkpoint: checkpoints.Checkpoint

    def file(self, name: str) -> str:
        """The path of a file of the folder; raises a UserError if it is not there."""
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            raise UserError(f"{self.flag}={self.path}: {self.folder} holds no {name}; copy there "
                            "that of the model that it was trained from")
        return path

    def config(self) -> modeling.BertConfig:
        """The content of `bert_config.json`; a UserError if the checkpoint has more layers."""
        config = load_config(self.file(CONFIG))
        check_layers(self.checkpoint, config, self.flag)
        return config

    def encoding(self, max_seq_length: int) -> Encoding:
        """The vocabulary with its casing, checked against the config; a UserError if the model has fewer positions."""
        config = self.config()
        if not 3 <= max_seq_length <= config.max_position_embeddings:
            raise UserError(f"{self.flag}={self.path}: max_seq_length ({task_json.FILE}, or its flag) is "
                            f"{max_seq_length}, and the model has {config.max_position_embeddings} positions")
        return load_encoding(
            self.file(vocabulary.FILE), do_lower_case=vocabulary.read_casing(self.folder),
            max_seq_length=max_seq_length, vocab_size=config.vocab_size,
            type_vocab_size=config.type_vocab_size)

    def description(self) -> Optional[Dict[str, Any]]:
        """The content of `task.json`; None if there is none."""
        return task_json.read(self.folder)


def check_record(trained: ModelFiles, vocab_file: str, config_file: Optional[str]) -> None:
    """Raises a UserError if files of a model folder differ from its run.json. Files that flags name are not compared."""
    if config_file or os.path.realpath(vocab_file) != os.path.realpath(os.path.join(trained.folder, vocabulary.FILE)):
        return
    facts, description = {"vocabulary": vocabulary.content_hash(vocab_file)}, trained.description()
    if description:
        facts.update({"casing (--do_lower_case)": description["do_lower_case"],
                      "--max_seq_length": description["max_seq_length"]})
        if task_json.is_classifier(description) and not description["label_separator"]:
            facts["label set"] = description["labels"]
    run_record.check_model(trained.folder, f"{trained.flag}={trained.path}", {
        "model config": load_config(trained.file(CONFIG)).to_dict(), **facts})


def load_config(path: str) -> modeling.BertConfig:
    """Reads a config, and checks that there can be such a model."""
    return checked_config(files.read_record(path, "--bert_config_file", {}),
                          f"--bert_config_file={path}")


def checked_config(values: Mapping[str, Any], where: str) -> modeling.BertConfig:
    """The config with these values, whose weights fit into the machine's memory."""
    config = modeling.BertConfig.from_dict(values)
    try:
        modeling.check_config(config)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    hidden = config.hidden_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    layer = hidden * (4 * hidden + 2 * config.intermediate_size)
    size = 4 * (rows * hidden + config.num_hidden_layers * layer)  # bytes, as float32
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory or config.num_hidden_layers > _MAX_LAYERS:
        raise UserError(
            f"{where}: {config.num_hidden_layers:,} layers of {hidden:,} and {rows:,} embeddings "
            f"take {size / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f}; is a "
            "number wrong?")
    return config


def open_folder(path: str, flag: str, *, is_foreign: bool = False) -> ModelFiles:
    """Opens a model folder, an export, or the prefix of a checkpoint.

    Args:
        path: a folder stands for its best, its newest or its only checkpoint.
        flag: the flag that gives it, for messages.
        is_foreign: the model is a classifier, or a BERT whose variables have known names of other code, which are
            replaced by ours.
    """
    if os.path.exists(os.path.join(path, huggingface.CONFIG)) and not any(
            name in (CONFIG, checkpoints.GRAPH_FILE) or name.endswith(".index")
            for name in os.listdir(path)):
        raise UserError(f"{flag}={path} is a Hugging Face folder: python -m encoder.convert "
                        f"--from_huggingface={path} --output_dir=... makes a model folder of it")
    checkpoint = checkpoints.open_checkpoint(path, flag)
    names = is_foreign and variables.known_names(checkpoint.shapes)
    checkpoint = checkpoint.renamed(names) if names else checkpoint
    trained = ModelFiles(path, flag, folder_of(checkpoint.path), checkpoint)
    if is_foreign and not names:
        _require_classifier(trained)
    if variables.WORD_EMBEDDINGS not in checkpoint.shapes:
        raise UserError(f"{flag}={checkpoint.path} is not a BERT: it has none of the "
                        f"model's variables, such as {variables.WORD_EMBEDDINGS}; it has "
                        f"{', '.join(checkpoint.parameters()[:3])} ...{_conversion(checkpoint)}")
    return trained


def folder_of(path: str) -> str:
    """Where the files of a model are: of a folder, an export, or the prefix of a checkpoint."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if os.path.basename(folder) == saved_model.VARIABLES:
        folder = os.path.dirname(folder)
    if checkpoints.is_saved_model(folder):
        return os.path.join(folder, saved_model.ASSETS)
    return folder


def _require_classifier(trained: ModelFiles) -> bool:
    """Raises a UserError if the model is no classifier, or a damaged one; whether it knows its labels."""
    require_classifier(trained.checkpoint, trained.flag)
    description = trained.description()
    if description:
        label_types.of_description(description, f"{trained.flag}={trained.path}")
    return bool(description)


def require_labels(trained: ModelFiles) -> None:
    """Raises a UserError if the model is no classifier that knows its labels."""
    if not _require_classifier(trained):
        raise UserError(
            f"{trained.flag}={trained.path}: {trained.folder} holds no {task_json.FILE}, so that the "
            "labels of this classifier are not known: python -m encoder.convert "
            f"--from_checkpoint={trained.path} --labels=... --output_dir=... makes a model "
            "folder of it")


def has_output_layer(checkpoint: checkpoints.Checkpoint) -> bool:
    """Whether a checkpoint has the output layer of a fine-tuned model."""
    return all(name in checkpoint.shapes for name in OUTPUT_LAYER)


def require_classifier(checkpoint: checkpoints.Checkpoint, flag: str) -> None:
    """Raises a UserError if a checkpoint has no classification layer."""
    if not has_output_layer(checkpoint):
        raise UserError(f"{flag}={checkpoint.path} has no classification layer (output_weights): "
                        "it is not fine-tuned; train it first (--do_train), or give a fine-tuned "
                        "one")


def num_outputs(checkpoint: checkpoints.Checkpoint) -> Optional[int]:
    """The outputs of a checkpoint's classification layer; None if it has none."""
    shape = checkpoint.shapes.get(OUTPUT_LAYER[1])
    return shape and shape[0]


def check_outputs(checkpoint: checkpoints.Checkpoint, needed: int, flag: str,
                  way_out: str = "they must be of the same task") -> None:
    """Raises a UserError, which ends with the way out, if a classification layer has other outputs."""
    held = num_outputs(checkpoint)
    if held not in (None, needed):
        raise UserError(f"{flag}={checkpoint.path} is a classifier with {held} outputs, and the "
                        f"task's labels need {needed}: {way_out}")


def check_layers(checkpoint: checkpoints.Checkpoint, config: modeling.BertConfig,
                 flag: str) -> None:
    """Raises a UserError if a checkpoint has layers that the config of the model does not."""
    first = f"bert/encoder/layer_{config.num_hidden_layers}/"
    surplus = next((name for name in sorted(checkpoint.shapes) if name.startswith(first)), None)
    if surplus:
        raise UserError(f"{flag}={checkpoint.path} has {surplus}, and the model's {CONFIG} names "
                        f"{config.num_hidden_layers} layers: one of them is not of this model")


def check_encoder(checkpoint: checkpoints.Checkpoint, config: modeling.BertConfig,
                  flag: str) -> None:
    """Warns if a checkpoint to start from lacks variables of the encoder.

    Raises:
        UserError: it has nothing of a layer or of a part of all layers, such as the norms.
    """
    names = [row.tensorflow for row in variables.correspondence(config.to_dict())[variables.ENCODER]]
    missing = missing_variables(checkpoint, config, variables.ENCODER)
    if not missing:
        return
    lacks = (f"{flag}={checkpoint.path} lacks {len(missing)} of the {len(names)} variables of the "
             f"model's encoder, such as {missing[0]}")
    layers = (f"/layer_{number}/" for number in range(config.num_hidden_layers))
    for part in ("/embeddings/", "/LayerNorm/", "/attention/", "/intermediate/", *layers):
        if all(name in missing for name in names if part in name):
            raise UserError(f"{lacks}, and all of {part[1:-1]}: it is no whole BERT of this {CONFIG}"
                            + _conversion(checkpoint))
    log.warn(f"{lacks}: a training starts them at random")


def with_pooler(checkpoint: checkpoints.Checkpoint, config: modeling.BertConfig) -> checkpoints.Checkpoint:
    """The checkpoint; if it has no pooler, with one that starts as the identity: it passes on the state of [CLS].

    A pooler that starts at random mixes these states, so that a short training learns little (docs/results.md). A
    training that reads no pooler keeps this one for the next, which may.
    """
    missing = missing_variables(checkpoint, config, variables.POOLER)
    if not missing:
        return checkpoint
    log.info(f"{checkpoint.path} has no pooler: it starts as the identity, which passes on the states of [CLS]")
    size = config.hidden_size
    return checkpoint.with_values({name: np.eye(size, dtype=np.float32) if name.endswith("/kernel")
                                   else np.zeros(size, np.float32) for name in missing})


def missing_variables(checkpoint: checkpoints.Checkpoint, config: modeling.BertConfig, *parts: str) -> List[str]:
    """The names of the variables that a checkpoint lacks of parts of the model, such as `variables.ENCODER`."""
    table = variables.correspondence(config.to_dict())
    return [row.tensorflow for part in parts for row in table[part] if row.tensorflow not in checkpoint.shapes]


def _conversion(checkpoint: checkpoints.Checkpoint) -> str:
    """Names the command that converts a checkpoint with known names of other code; else ""."""
    return ("; its names are other code's: python -m encoder.convert --from_checkpoint="
            f"{checkpoint.path} --output_dir=... makes a model folder of it"
            if variables.known_names(checkpoint.shapes) else "")


def save(folder: str, config: modeling.BertConfig, vocab_file: Optional[str],
         do_lower_case: bool) -> None:
    """Writes the files that describe any model, beside its checkpoints.

    Args:
        vocab_file: None if the vocabulary is not known.
    """
    files.write_text(os.path.join(folder, CONFIG), config.to_json_string())
    if not vocab_file:
        return
    target = os.path.join(folder, vocabulary.FILE)
    if not (os.path.exists(target) and os.path.samefile(vocab_file, target)):
        with files.atomic_path(target) as temporary:
            shutil.copyfile(vocab_file, temporary)
    vocabulary.write_casing(folder, do_lower_case)

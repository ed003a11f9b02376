"""Converts BERT checkpoints between TensorFlow and Hugging Face.

    python -m encoder.convert --from_huggingface=DIR --output_dir=DIR
    python -m encoder.convert --from_tensorflow=DIR_OR_CHECKPOINT --output_dir=DIR

A Hugging Face folder holds config.json, model.safetensors, vocab.txt (or tokenizer.json)
and tokenizer_config.json; one of Google's holds bert_config.json, bert_model.ckpt.* and
vocab.txt. A classifier keeps its head, and its labels in task.json. No pickle is ever
loaded. float32 weights are copied bit by bit.
"""

import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from absl import flags
import numpy as np
import safetensors
from safetensors.numpy import save_file

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)
from encoder import label_config, variables, vocabulary
from engine import checkpoints, command, files, log, saved_model
from engine.errors import UserError

import tensorflow.compat.v1 as tf

CHECKPOINT = "bert_model.ckpt"
TENSORFLOW_CONFIG = "bert_config.json"
HUGGINGFACE_CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PICKLE = "pytorch_model.bin"

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
         "intermediate_size", "max_position_embeddings", "type_vocab_size")
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")

# Hugging Face's name → ours. On the way back the first of several names is written.
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
               "relu": "relu", "tanh": "tanh", "linear": "linear"}

# The masked-LM head shares these; some files hold them twice.
_TIED = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
         "cls.predictions.decoder.bias": "cls.predictions.bias"}

LAYER_NORM_EPSILON = 1e-12  # the original's; no config of TensorFlow states it


class Conversion(NamedTuple):
    """The result of a conversion."""
    output: str  # the prefix of the checkpoint (TensorFlow), the folder (Hugging Face)
    do_lower_case: bool  # whether the vocabulary is for lower-cased text
    warnings: List[str]  # what the target lacks or does differently, a line each


class _Source(NamedTuple):
    shapes: Dict[str, Tuple[int, ...]]
    read: Callable[[str], np.ndarray]  # name → float32


def convert_from_huggingface(source_dir: str, output_dir: str, *,
                             takes_pairs: bool = False) -> Conversion:
    """Writes the BERT of a Hugging Face folder as a folder like Google's released ones.

    For a classifier it includes a task.json, so that it can score texts.

    Args:
        source_dir: holds config.json, model.safetensors, and vocab.txt or tokenizer.json.
        output_dir: new or empty; written completely or not at all.
        takes_pairs: whether a classifier's texts are pairs.

    Raises:
        UserError: a file is missing or damaged, or the model is not a plain BERT.
    """
    config_path = os.path.join(source_dir, HUGGINGFACE_CONFIG)
    config = files.read_record(config_path, "Hugging Face configuration", {})
    bert_config, config_warnings = _config_from_huggingface(config, config_path)
    weights_path = os.path.join(source_dir, WEIGHTS)
    weights = _open_safetensors(weights_path)
    tokens = vocabulary.read_tokens(source_dir, bert_config["vocab_size"])
    do_lower_case, tokenizer_warnings = vocabulary.read_casing(source_dir, tokens)
    description = label_config.from_huggingface(
        config, config_path, takes_pairs=takes_pairs, do_lower_case=do_lower_case,
        max_seq_length=vocabulary.longest_input(source_dir, bert_config["max_position_embeddings"]))
    matched = variables.match(weights.shapes, bert_config, "huggingface", weights_path,
                                   description and label_config.num_outputs(description))
    with files.new_folder(output_dir, "--output_dir") as folder:
        checkpoints.write_checkpoint(os.path.join(folder, CHECKPOINT), {
            row.tensorflow: _transposed(row, weights.read(row.huggingface))
            for row in matched.rows})
        files.write_json(os.path.join(folder, TENSORFLOW_CONFIG), bert_config)
        files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(tokens) + "\n")
        files.write_json(os.path.join(folder, vocabulary.CASING_FILE),
                         {"do_lower_case": do_lower_case})
        if variables.CLASSIFIER in matched.parts:
            files.write_json(os.path.join(folder, label_config.FILE), description)
            tf.train.update_checkpoint_state(folder, CHECKPOINT)  # as a trained model's folder
    return Conversion(os.path.join(output_dir, CHECKPOINT), do_lower_case,
                      config_warnings + tokenizer_warnings + matched.warnings)


def convert_from_tensorflow(source: str, output_dir: str, *,
                            bert_config_file: Optional[str] = None,
                            vocab_file: Optional[str] = None) -> Conversion:
    """Writes a TensorFlow BERT checkpoint as a Hugging Face folder.

    Args:
        source: the prefix of a checkpoint; or the folder of a released model, an export, or
            a training run, of which the best or newest checkpoint is converted.
        output_dir: new or empty; written completely or not at all.
        bert_config_file, vocab_file: default: those beside the checkpoint.

    Raises:
        UserError: a file is missing or damaged, or the checkpoint does not fit the config.
    """
    checkpoint, prefix, folder_of_model = _open_checkpoint(source)
    config_path = bert_config_file or os.path.join(folder_of_model, TENSORFLOW_CONFIG)
    bert_config = files.read_record(config_path, "BERT configuration", {})
    config = _config_from_tensorflow(bert_config, config_path)
    description = label_config.read(folder_of_model)
    matched = variables.match(checkpoint.shapes, bert_config, "tensorflow", prefix,
                                   description and label_config.num_outputs(description))
    vocab_file = vocab_file or os.path.join(folder_of_model, vocabulary.FILE)
    tokens = vocabulary.read_tokens(vocab_file, config["vocab_size"])
    do_lower_case, warnings = vocabulary.read_casing(os.path.dirname(vocab_file), tokens)
    max_length, labels = config["max_position_embeddings"], {}
    if variables.CLASSIFIER in matched.parts:
        do_lower_case = description["do_lower_case"]
        max_length = description["max_seq_length"]
        labels = label_config.to_huggingface(description)
    with files.new_folder(output_dir, "--output_dir") as folder:
        save_file({row.huggingface: _transposed(row, checkpoint.read(row.tensorflow))
                   for row in matched.rows},
                  os.path.join(folder, WEIGHTS), metadata={"format": "pt"})
        files.write_json(os.path.join(folder, HUGGINGFACE_CONFIG),
                         {"architectures": [_architecture(matched.parts)], **config, **labels})
        files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(tokens) + "\n")
        files.write_json(os.path.join(folder, vocabulary.CASING_FILE), {
            "tokenizer_class": "BertTokenizer", "do_lower_case": do_lower_case,
            "model_max_length": max_length})
    return Conversion(output_dir, do_lower_case, warnings + matched.warnings)


# --- Configurations ----------------------------------------------------------------------


def _config_from_huggingface(config: Mapping[str, Any],
                             path: str) -> Tuple[Dict[str, Any], List[str]]:
    """The `bert_config.json` of a Hugging Face config, and warnings."""
    for key, plain in (("model_type", "bert"), ("position_embedding_type", "absolute"),
                       ("is_decoder", False)):
        if config.get(key, plain) != plain:
            raise UserError(f"{path}: {key} is {config[key]!r}; only BERT encoders "
                            f"({key} {plain!r}) can be converted")
    bert_config = _common_entries(config, path)
    bert_config["hidden_act"] = _look_up(ACTIVATIONS, config.get("hidden_act"), path)
    epsilon = config.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if epsilon == LAYER_NORM_EPSILON:
        return bert_config, []
    return bert_config, [f"{path}: layer_norm_eps is {epsilon}, here it is always "
                         f"{LAYER_NORM_EPSILON}: outputs differ by about as much"]


def _config_from_tensorflow(bert_config: Mapping[str, Any], path: str) -> Dict[str, Any]:
    # Reversed, so that the first of several names wins.
    names = {ours: theirs for theirs, ours in reversed(list(ACTIVATIONS.items()))}
    return {"model_type": "bert", **_common_entries(bert_config, path),
            "hidden_act": _look_up(names, bert_config.get("hidden_act"), path),
            "layer_norm_eps": LAYER_NORM_EPSILON}


def _common_entries(config: Mapping[str, Any], path: str) -> Dict[str, Any]:
    """The entries that both kinds of config have under the same name, checked."""
    for key in SIZES:
        if type(config.get(key)) is not int or config[key] < 1:
            raise UserError(f"{path}: {key} is {config.get(key)!r}, must be a positive integer")
    for key in RATES:
        if type(config.get(key)) not in (int, float):
            raise UserError(f"{path}: {key} is {config.get(key)!r}, must be a number")
    return {key: config[key] for key in SIZES + RATES}


def _look_up(names: Mapping[str, str], name: Any, path: str) -> str:
    if name not in names:
        raise UserError(f"{path}: hidden_act is {name!r}; can be converted: {sorted(names)}")
    return names[name]


def _architecture(parts: List[str]) -> str:
    """The transformers class that has exactly these parts."""
    if variables.CLASSIFIER in parts:
        return label_config.ARCHITECTURE
    if variables.MASKED_LM_HEAD not in parts:
        return "BertModel"
    with_pair_head = variables.NEXT_SENTENCE_HEAD in parts
    return "BertForPreTraining" if with_pair_head else "BertForMaskedLM"


# --- Weights -----------------------------------------------------------------------------


def _transposed(row: variables.Row, values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.T) if row.transposed else values


def _open_safetensors(path: str) -> _Source:
    pickle = os.path.join(os.path.dirname(path), PICKLE)
    if os.path.exists(pickle) and not os.path.exists(path):
        raise UserError(
            f"{pickle} is a pickle, which can run any code and is not loaded here; if you "
            f"trust it, transformers converts it to {WEIGHTS}: "
            "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(NEW_DIR)")
    files.require_file(path, "weights")
    try:
        weights = safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is truncated or not a safetensors file: {error}") from error
    stored = {_current_name(name): name for name in weights.keys()}

    def read(name: str) -> np.ndarray:
        dtype = weights.get_slice(stored[name]).get_dtype()
        if dtype not in ("F16", "F32", "F64"):
            raise UserError(f"{path}: {name} is of type {dtype}; save the weights as F32 or F16")
        return weights.get_tensor(stored[name]).astype(np.float32)

    copies = [name for name, original in _TIED.items()
              if name in stored and original in stored
              and np.array_equal(read(name), read(original))]
    return _Source({name: tuple(weights.get_slice(stored[name]).get_shape()) for name in stored
                    if name not in copies and not name.endswith(".position_ids")}, read)


def _current_name(name: str) -> str:
    """A tensor's current name: bare encoders lack the prefix, old files have gamma and beta."""
    prefix = "bert." if name.startswith(("embeddings.", "encoder.", "pooler.")) else ""
    return prefix + name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias")


def _open_checkpoint(path: str) -> Tuple[_Source, str, str]:
    """A checkpoint's variables (without the optimizer's), its prefix and its model's folder."""
    if saved_model.is_there(path):
        checkpoint = saved_model.open_variables(path)
        folder = os.path.join(path, saved_model.ASSETS)
    else:
        checkpoint = checkpoints.open_checkpoint(path, "--from_tensorflow")
        folder = os.path.dirname(checkpoint.path)

    def read(name: str) -> np.ndarray:
        try:
            return tf.train.load_variable(checkpoint.path, name).astype(np.float32)
        except tf.errors.OpError as error:
            raise UserError(f"checkpoint {checkpoint.path} cannot be read: {error}") from error

    # The optimizer's slots are named <variable>/adam_m and so on.
    return _Source({name: tuple(shape) for name, shape in checkpoint.shapes.items()
                    if os.path.dirname(name) not in checkpoint.shapes
                    and name != tf.GraphKeys.GLOBAL_STEP}, read), checkpoint.path, folder


# --- The command -------------------------------------------------------------------------


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("from_huggingface", "Folder with config.json, model.safetensors and vocab.txt."),
            ("from_tensorflow", "Folder with a checkpoint, prefix of one, or an export."),
            ("bert_config_file", "Default: bert_config.json beside the checkpoint."),
            ("vocab_file", "Default: vocab.txt beside the checkpoint."),
            ("output_dir", "The folder to write; new or empty.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool("takes_pairs", False, "The Hugging Face classifier takes pairs of texts "
                      "(its files do not tell).", flag_values=values)
    return values


def main(values: flags.FlagValues) -> None:
    """Converts, and prints what was written."""
    conversion = _convert(values)
    for warning in conversion.warnings:
        log.warn(warning)
    print(f"wrote {conversion.output} (--do_lower_case={str(conversion.do_lower_case).lower()})")


def _convert(values: flags.FlagValues) -> Conversion:
    if bool(values.from_huggingface) == bool(values.from_tensorflow):
        raise UserError("give one of --from_huggingface and --from_tensorflow")
    if not values.output_dir:
        raise UserError("--output_dir is not given")
    if values.from_tensorflow:
        if values.takes_pairs:
            raise UserError("--takes_pairs goes with --from_huggingface only")
        return convert_from_tensorflow(
            values.from_tensorflow, values.output_dir,
            bert_config_file=values.bert_config_file, vocab_file=values.vocab_file)
    if values.bert_config_file or values.vocab_file:
        raise UserError("--bert_config_file and --vocab_file go with --from_tensorflow only")
    return convert_from_huggingface(values.from_huggingface, values.output_dir,
                                    takes_pairs=values.takes_pairs)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

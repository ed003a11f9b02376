"""Converts models: between TensorFlow and Hugging Face, and others' models into ours.

    python -m encoder.convert --from_huggingface=DIR --output_dir=DIR
    python -m encoder.convert --from_tensorflow=DIR_OR_CHECKPOINT --output_dir=DIR
    python -m encoder.convert --from_checkpoint=DIR_OR_CHECKPOINT --labels=a,b --output_dir=DIR
    python -m encoder.convert --from_tensorflow=EXPORT --to_onnx=FILE [--int8]

A Hugging Face folder holds config.json, model.safetensors, vocab.txt (or tokenizer.json)
and tokenizer_config.json; a model folder holds bert_config.json, a checkpoint, vocab.txt and
tokenizer_config.json. Classifiers, taggers and readers keep their head, and their labels in task.json;
a model of sentence-transformers keeps its pooling (modules.json there, task.json here). DistilBERT and
ELECTRA become a BERT. --from_checkpoint
is for a classifier that other code has fine-tuned: --labels names its outputs in their order
(none for a regression); and for any BERT whose variables have other code's names, if they are
known. No pickle is ever loaded. float32 weights are copied bit by bit.
--to_onnx writes what an export computes as one file for other programs, such as onnxruntime; with --int8
in a quarter of the size. Its answers differ then: --export_int8 of a training command compares them on a labelled set.
"""

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from absl import flags
import numpy as np
from safetensors.numpy import save_file

from encoder import (
    heads, huggingface, label_types, model_files, sentence_transformers, task_json, tokenizer_files,
    variables, vocabulary)
from encoder.encoding import load_encoding
from encoder.huggingface import Weights
from engine import log
from engine.checkpoints import checkpoints, onnx_file
from engine.cli import command
from engine.disk import files
from engine.errors import UserError
from engine.settings import required

import tensorflow.compat.v1 as tf

CHECKPOINT = "bert_model.ckpt"

# What both kinds of config name alike.
COMMON_ENTRIES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "initializer_range")

# Hugging Face's name → ours. On the way back the first of several names is written.
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
               "relu": "relu", "tanh": "tanh", "linear": "linear"}

LAYER_NORM_EPSILON = 1e-12  # the original's; no config of TensorFlow states it
_LONGEST = 128  # tokens of an input, by default: as in run_classifier.py, Google's and ours
_LONGEST_WINDOW = 384  # of a reader: as in run_squad.py and in transformers' pipeline


class Conversion(NamedTuple):
    """The result of a conversion."""
    output: str  # the prefix of the checkpoint (TensorFlow), the folder (Hugging Face)
    do_lower_case: bool  # whether the vocabulary is for lower-cased text
    warnings: List[str]  # what the target lacks or does differently, a line each


def convert_from_huggingface(source_dir: str, output_dir: str, *,
                             takes_pairs: bool = False) -> Conversion:
    """Writes the BERT of a Hugging Face folder as a model folder.

    For a fine-tuned model it includes a task.json, so that it can read texts, and so for a model of
    sentence-transformers, so that it can give them vectors.

    Args:
        source_dir: holds config.json, safetensors files, and vocab.txt or tokenizer.json.
        output_dir: new, empty or the same conversion's; written completely or not at all.
        takes_pairs: whether a classifier's texts are pairs.
    """
    sentences = sentence_transformers.read(source_dir)
    if sentences:
        source_dir = sentences.encoder_folder
    config_path = os.path.join(source_dir, huggingface.CONFIG)
    config = files.read_record(config_path, "Hugging Face configuration", {})
    naming = huggingface.check_type(config, config_path)
    tokenizer_files.read(source_dir)
    bert_config, warnings = _config_from_huggingface(config, naming, config_path)
    weights = huggingface.open_weights(source_dir, naming)
    tokens = vocabulary.read_tokens(source_dir, bert_config["vocab_size"])
    do_lower_case = vocabulary.read_casing(source_dir, tokens)
    longest = vocabulary.longest_input(source_dir, bert_config["max_position_embeddings"])
    if sentences:
        outputs, description = {}, sentences.description
        longest = min(sentences.max_seq_length or longest, longest)
        warnings += sentences.warnings
    else:
        outputs, description = heads.from_huggingface(weights, config, config_path, takes_pairs)
    if variables.READER in outputs:
        longest = min(_LONGEST_WINDOW, longest)
    matched = variables.match(weights.shapes, bert_config, "huggingface", weights.path, outputs)
    values = {row.tensorflow: _transposed(row, weights.read(row.huggingface))
              for row in matched.rows}
    return _write_model_folder(
        output_dir, values, bert_config, tokens, do_lower_case, longest, description,
        warnings + matched.warnings)


def convert_from_checkpoint(source: str, output_dir: str, *, labels: Sequence[str],
                            label_kind: Optional[str] = None, takes_pairs: bool = False,
                            do_lower_case: Optional[bool] = None,
                            max_seq_length: Optional[int] = None,
                            bert_config_file: Optional[str] = None,
                            vocab_file: Optional[str] = None) -> Conversion:
    """Writes a classifier that other code has fine-tuned, or its encoder, as a model folder.

    Args:
        source: the prefix of a checkpoint, or the folder of a training.
        output_dir: new, empty or the same conversion's; written completely or not at all.
        labels: of the classifier's outputs, in their order; none for a regression or an encoder.
        label_kind: one of `task_json.LABEL_TYPES`; default: a single label, or a regression.
        do_lower_case: default: as the files beside the vocabulary or its tokens say.
        max_seq_length: the longest input in tokens; default: 128, or all positions if fewer.
        bert_config_file, vocab_file: default: those beside the checkpoint.
    """
    model = model_files.open_folder(source, "--from_checkpoint", is_foreign=True)
    config = model_files.load_config(bert_config_file or model.file(model_files.CONFIG))
    vocab_file = vocab_file or model.file(vocabulary.FILE)
    tokens = vocabulary.read_tokens(vocab_file, config.vocab_size)
    vocabulary.warn_of_another(vocab_file, model.folder)
    recorded_casing = vocabulary.read_casing(os.path.dirname(vocab_file), tokens)
    do_lower_case = recorded_casing if do_lower_case is None else do_lower_case
    length = max_seq_length or min(_LONGEST, config.max_position_embeddings)
    if length > config.max_position_embeddings:
        raise UserError(f"--max_seq_length={length}: the model has only "
                        f"{config.max_position_embeddings} positions")
    load_encoding(vocab_file, do_lower_case=do_lower_case, max_seq_length=length,
                  vocab_size=config.vocab_size)  # checks that it is a vocabulary of the model's
    num_outputs, = model.checkpoint.shapes.get("output_bias", [0])
    description = {
        **label_types.of_names(labels, label_kind, num_outputs, "--labels").describe(),
        "takes_pairs": takes_pairs} if num_outputs or labels or label_kind else None
    held = _weights_of(model.checkpoint)
    matched = variables.match(held.shapes, config.to_dict(), "tensorflow", held.path,
                              {variables.CLASSIFIER: num_outputs} if num_outputs else {})
    values = {row.tensorflow: held.read(row.tensorflow) for row in matched.rows}
    return _write_model_folder(output_dir, values, config.to_dict(), tokens, do_lower_case, length,
                               description, matched.warnings)


def _write_model_folder(output_dir: str, values: Mapping[str, np.ndarray],
                        bert_config: Mapping[str, Any], tokens: List[str], do_lower_case: bool,
                        max_seq_length: int, description: Optional[Mapping[str, Any]],
                        warnings: List[str]) -> Conversion:
    with files.new_folder(output_dir, "--output_dir") as folder:
        checkpoints.write_checkpoint(os.path.join(folder, CHECKPOINT), values)
        files.write_json(os.path.join(folder, model_files.CONFIG), bert_config)
        files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(tokens) + "\n")
        vocabulary.write_casing(folder, do_lower_case)
        if description:
            task_json.write(folder, description, do_lower_case, max_seq_length)
            tf.train.update_checkpoint_state(folder, CHECKPOINT)  # as a trained model's folder
            if description.get("takes_pairs") is False:
                log.info("the classifier is one of single texts; if it was trained on pairs, which its files do not tell, "
                         "set --takes_pairs")
    return Conversion(os.path.join(output_dir, CHECKPOINT), do_lower_case, warnings)


def convert_from_tensorflow(source: str, output_dir: str, *,
                            bert_config_file: Optional[str] = None,
                            vocab_file: Optional[str] = None) -> Conversion:
    """Writes a TensorFlow BERT checkpoint as a Hugging Face folder.

    Args:
        source: the prefix of a checkpoint; or a model folder or an export, of which the best
            or newest checkpoint is converted.
        output_dir: new, empty or the same conversion's; written completely or not at all.
        bert_config_file, vocab_file: default: those beside the checkpoint.
    """
    model = model_files.open_folder(source, "--from_tensorflow")
    weights = _weights_of(model.checkpoint)
    config_path = bert_config_file or model.file(model_files.CONFIG)
    bert_config = model_files.load_config(config_path).to_dict()
    config = _config_from_tensorflow(bert_config, config_path)
    description = model.description() or {}
    outputs, entries = heads.from_tensorflow(description, weights, f"--from_tensorflow={source}")
    matched = variables.match(weights.shapes, bert_config, "tensorflow", weights.path, outputs)
    vocab_file = vocab_file or model.file(vocabulary.FILE)
    tokens = vocabulary.read_tokens(vocab_file, config["vocab_size"])
    vocabulary.warn_of_another(vocab_file, model.folder)
    model_files.check_record(model, vocab_file, bert_config_file)
    do_lower_case = vocabulary.read_casing(os.path.dirname(vocab_file), tokens)
    max_length = config["max_position_embeddings"]
    gives_vectors = task_json.gives_vectors(description)
    head = next((head for head in outputs if head in matched.parts), None)
    if description and (gives_vectors or head):
        do_lower_case = description["do_lower_case"]
        max_length = description["max_seq_length"]
    ids = vocabulary.load_tokenizer(vocab_file, do_lower_case).vocab
    rows = [row for row in matched.rows if not (
        head in (variables.TAGGER, variables.READER) and row.tensorflow.startswith(variables.POOLER_SCOPE))]
    with files.new_folder(output_dir, "--output_dir") as folder:
        values = {row.tensorflow: weights.read(row.tensorflow) for row in rows}
        mean, deviation = description.get("mean", 0.0), description.get("deviation", 1.0)
        if head and (mean, deviation) != (0.0, 1.0):
            # A regression gives numbers in the labels' unit there.
            for name, shift in (("output_weights", 0.0), ("output_bias", mean)):
                values[name] = (values[name] * deviation + shift).astype(np.float32)
        save_file(
            {row.huggingface: _transposed(row, values[row.tensorflow]) for row in rows},
            os.path.join(folder, huggingface.WEIGHTS), metadata={"format": "pt"})
        files.write_json(os.path.join(folder, huggingface.CONFIG),
                         {"architectures": [heads.architecture(matched.parts)], **config, "pad_token_id": ids["[PAD]"],
                          **(entries if head else {})})
        files.write_text(os.path.join(folder, vocabulary.FILE), "\n".join(tokens) + "\n")
        files.write_json(os.path.join(folder, vocabulary.CASING_FILE), {
            "tokenizer_class": "BertTokenizer", "do_lower_case": do_lower_case,
            "model_max_length": max_length})
        files.write_json(os.path.join(folder, tokenizer_files.FAST), tokenizer_files.fast(ids, do_lower_case))
        if gives_vectors:
            sentence_transformers.write(folder, description, config["hidden_size"])
    return Conversion(output_dir, do_lower_case, [
        *heads.untold(description, weights, head), *matched.warnings])


def _config_from_huggingface(config: Mapping[str, Any], naming: variables.Naming,
                             path: str) -> Tuple[Dict[str, Any], List[str]]:
    """The `bert_config.json` of a Hugging Face config, and warnings."""
    size = naming.entries.get("hidden_size", "hidden_size")
    if size not in config:
        raise UserError(f"{path} lacks {size!r}: is its model_type, {config.get('model_type')!r}, right?")
    bert_config = {key: config.get(naming.entries.get(key, key)) for key in (*COMMON_ENTRIES, "hidden_act")}
    bert_config["hidden_act"] = _look_up(ACTIVATIONS, bert_config["hidden_act"], path)
    if not naming.has_segments:
        bert_config["type_vocab_size"] = variables.SEGMENTS
    model_files.checked_config(bert_config, path)
    epsilon = config.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if epsilon == LAYER_NORM_EPSILON:
        return bert_config, []
    return bert_config, [f"{path}: layer_norm_eps is {epsilon}, here it is always "
                         f"{LAYER_NORM_EPSILON}: outputs differ by about as much"]


def _config_from_tensorflow(bert_config: Mapping[str, Any], path: str) -> Dict[str, Any]:
    # Reversed, so that the first of several names wins.
    names = {ours: theirs for theirs, ours in reversed(list(ACTIVATIONS.items()))}
    return {"model_type": "bert", **{key: bert_config[key] for key in COMMON_ENTRIES},
            "hidden_act": _look_up(names, bert_config["hidden_act"], path),
            "layer_norm_eps": LAYER_NORM_EPSILON}


def _look_up(names: Mapping[str, str], name: Any, path: str) -> str:
    if not isinstance(name, str) or name not in names:
        raise UserError(f"{path}: hidden_act is {name!r}; can be converted: {sorted(names)}")
    return names[name]


def _transposed(row: variables.Row, values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.T) if row.transposed else values


def _weights_of(checkpoint: checkpoints.Checkpoint) -> Weights:
    """A checkpoint's variables, without the optimizer's and the step."""
    def read(name: str) -> np.ndarray:
        try:
            return checkpoint.value(name).astype(np.float32)
        except tf.errors.OpError as error:
            raise UserError(f"checkpoint {checkpoint.path} cannot be read: {error}") from error

    # The slots of any optimizer are named <variable>/<slot>.
    return Weights(checkpoint.path, {
        name: tuple(checkpoint.shapes[name]) for name in checkpoint.parameters()
        if os.path.dirname(name) not in checkpoint.shapes}, read)


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("from_huggingface", "Folder with config.json, model.safetensors and vocab.txt."),
            ("from_tensorflow", "Model folder, prefix of a checkpoint, or an export."),
            ("from_checkpoint", "A classifier that other code has fine-tuned, or an encoder with "
             "other code's names: the folder of its training, or the prefix of its checkpoint."),
            ("to_onnx", "With --from_tensorflow, an export: the ONNX file to write, in place of "
             "--output_dir; needs encoder/requirements.txt."),
            ("bert_config_file", "Default: bert_config.json beside the checkpoint."),
            ("vocab_file", "Default: vocab.txt beside the checkpoint."),
            ("output_dir", "The folder to write; new or empty.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool("int8", False, "With --to_onnx: weights of 8 bits, but for the output layer; the file is a "
                      "quarter of the size, and answers differ.", flag_values=values)
    flags.DEFINE_list("labels", [], "With --from_checkpoint: the labels of the classifier's "
                      "outputs, in their order, separated by commas; none for a regression.",
                      flag_values=values)
    flags.DEFINE_enum("label_kind", None, list(task_json.LABEL_TYPES), "With --from_checkpoint: "
                      "whether a text has one label, any number of them or a number; default: one "
                      "label, or without --labels a number.", flag_values=values)
    flags.DEFINE_bool("takes_pairs", False, "The classifier takes pairs of texts (its files do "
                      "not tell).", flag_values=values)
    flags.DEFINE_bool("do_lower_case", None, "With --from_checkpoint: whether the model is for "
                      "lower-cased text; default: as its files and vocabulary say.",
                      flag_values=values)
    flags.DEFINE_integer("max_seq_length", None, "With --from_checkpoint: longest input in tokens; "
                         f"default: {_LONGEST}.", lower_bound=3, flag_values=values)
    return values


# Each source's function, and the flags that are its arguments beside --output_dir.
_CONVERSIONS = {
    "from_huggingface": (convert_from_huggingface, ("takes_pairs",)),
    "from_tensorflow": (convert_from_tensorflow, ("bert_config_file", "vocab_file")),
    "from_checkpoint": (convert_from_checkpoint, (
        "labels", "label_kind", "takes_pairs", "do_lower_case", "max_seq_length",
        "bert_config_file", "vocab_file")),
}


def main(values: flags.FlagValues) -> None:
    """Converts, and prints what was written."""
    if values.to_onnx:
        _write_onnx(values)
        print(f"wrote {log.visible(values.to_onnx)}")
        return
    if values.int8:
        raise UserError("--int8 needs --to_onnx, which is not set")
    sources = [name for name in _CONVERSIONS if values[name].value]
    if len(sources) != 1:
        raise UserError("give one of --from_huggingface, --from_tensorflow and --from_checkpoint")
    source, = sources
    convert, options = _CONVERSIONS[source]
    for name in _CONVERSIONS["from_checkpoint"][1]:  # which has all of them
        if values[name].present and name not in options:
            raise UserError(f"--{name} does not go with --{source}")
    conversion = convert(values[source].value, required(values, "output_dir"),
                         **{name: values[name].value for name in options})
    for warning in conversion.warnings:
        log.warn(warning)
    print(f"wrote {log.visible(conversion.output)} "
          f"(--do_lower_case={str(conversion.do_lower_case).lower()})")


def _write_onnx(values: flags.FlagValues) -> None:
    source = required(values, "from_tensorflow")
    for name in {"output_dir"}.union(*(options for _, options in _CONVERSIONS.values())):
        if values[name].present:
            raise UserError(f"--{name} does not go with --to_onnx")
    if not checkpoints.is_saved_model(source):
        raise UserError(f"--from_tensorflow={source} is no export (it has no "
                        f"{checkpoints.GRAPH_FILE}), and --to_onnx needs one: the command that "
                        "trained the model writes it with --do_export")
    # TensorFlow's own reader checks too little.
    checkpoints.open_checkpoint(source, "--from_tensorflow")
    files.check_output(values.to_onnx, "--to_onnx", [])
    onnx_file.write(values.to_onnx, source, _metadata(model_files.folder_of(source)),
                    int8=values.int8)


def _metadata(folder: str) -> Dict[str, str]:
    """The description of the model in a folder, with its casing and labels, each entry as JSON."""
    facts = task_json.read(folder) or {"do_lower_case": vocabulary.recorded_casing(folder)}
    labels = os.path.join(folder, task_json.LABELS)
    if os.path.exists(labels):
        facts["labels"] = files.read_json(labels, "the labels")
    return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

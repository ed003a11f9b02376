"""Extracts BERT's features of texts, on every visible GPU.

Has the flags and JSON lines of google-research/bert's extract_features.py, and more.
"""

from typing import List

from absl import flags

from encoder import bert, model_flags
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.cli import command, device_flags, shards
from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from engine.inference import PredictionSettings
from features.extraction import Extraction, is_array
from modeling import BertConfig
from runs.stream import run

USAGE = """Extracts BERT's features of texts, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python extract_features.py --input_file=texts.txt --output_file=features.jsonl \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --layers=-1,-2,-3,-4
  python extract_features.py --input_file=texts.txt --output_file=vectors.npy \\
    --init_checkpoint=$MODEL --pooling=mean

Each line of the input is a text, or two with " ||| " between them. The output has the same order:
for each text the states of all tokens, or with --pooling one vector, in lines of JSON or, in a file
named .npy, as a NumPy array. After an interruption the same command continues."""

_LAYERS_OF_TOKENS = "-1,-2,-3,-4"
_LAYERS_OF_VECTORS = "-1"


def define_flags() -> flags.FlagValues:
    """The flags of Google's extract_features.py, and others."""
    values = flags.FlagValues()
    flags.DEFINE_string("input_file", None, "The texts, one a line.", flag_values=values)
    flags.DEFINE_string("output_file", None, "The file for the features: a line of JSON for each "
                        "text or, with --pooling and a name that ends in .npy, a NumPy array of all "
                        "vectors.", flag_values=values)
    flags.DEFINE_string("layers", None, "Layers to write, separated by commas: from 0, or "
                        "backwards from -1, the last one. Default: "
                        f"{_LAYERS_OF_TOKENS}; with --pooling {_LAYERS_OF_VECTORS}.",
                        flag_values=values)
    flags.DEFINE_enum("pooling", None, bert.POOLINGS, "One vector for each text: the state "
                      "of [CLS], or the mean or maximum of all its tokens' states. The "
                      "vectors of several layers are joined.", flag_values=values)
    model_flags.define(values, "the model")
    model_flags.define_max_seq_length(values)
    shards.define_flags(values)
    shards.define_skip_flag(values)
    settings.define_flags(values, PredictionSettings)
    values.set_default("predict_batch_size", 32)
    flags.DEFINE_alias("batch_size", "predict_batch_size", flag_values=values)
    device_flags.define(values)
    flags.DEFINE_bool("use_one_hot_embeddings", False, "TPU only; ignored.", flag_values=values)
    settings.define_flags(values, device_flags.TpuSettings)
    return values


def open_model(values: flags.FlagValues) -> Extraction:
    """The model that the flags name."""
    device_flags.check_tpu(values)
    if values["use_one_hot_embeddings"].present:
        log.warn("--use_one_hot_embeddings is for TPUs and has no effect here")
    text_files.check_lines(files.require_file(settings.required(values, "input_file"), "--input_file"))
    output_file = settings.required(values, "output_file")
    if is_array(output_file) and not values.pooling:
        raise UserError(f"--output_file={output_file}: an array holds one vector for each text; give "
                        "--pooling, too, or name a file for lines of JSON")
    if is_array(output_file) and values.skip_bad_lines:
        raise UserError(f"--skip_bad_lines: --output_file={output_file} is an array, which has no "
                        "place for an error; name a file for lines of JSON")
    settings.required(values, "init_checkpoint")
    config, encoding = model_flags.load_model(values)
    return Extraction(config, encoding, checkpoints.open_checkpoint(values.init_checkpoint),
                      _layers(values, config), values.pooling, values)


def _layers(values: flags.FlagValues, config: BertConfig) -> List[int]:
    text = values.layers or (_LAYERS_OF_VECTORS if values.pooling else _LAYERS_OF_TOKENS)
    count = config.num_hidden_layers
    known = {str(layer): layer for layer in range(-count, count)}
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(known):
        raise UserError(f"--layers={text}: must be numbers of layers, separated by commas; the model "
                        f"has 0 to {count - 1}, which are also -{count} to -1")
    return [known[name] for name in names]


def main(values: flags.FlagValues) -> None:
    """Extracts the features."""
    with open_model(values) as opened:
        run(values, opened)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Pretrains BERT on examples in TFRecord files, on every visible GPU.

  python -m pretraining.run --input_file='books.tfrecord*' --eval_input_file=held_out.tfrecord \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out --do_train --do_eval --num_train_steps=20000 --num_gpus=4

The files are written by pretraining.create_data or by Google's create_pretraining_data.py. Flags
and eval_results.txt are those of Google's run_pretraining.py. Batch sizes are per replica (GPU);
the number of steps is not divided by the number of replicas: with N replicas, a step has N times
as many examples. run_classifier.py takes the resulting model as --init_checkpoint.
"""

import os
from typing import Optional

from absl import flags

from encoder import model_files, model_flags, pretraining_tfrecords, vocabulary
from encoder.encoding import Encoding
from engine import log, settings
from engine.cli import command, device_flags
from engine.errors import UserError
from engine.settings import required
from engine.training.settings import StepSchedule, define_run_flags
from modeling import BertConfig
from pretraining.data import check_vocab
from pretraining.capability import LOSS, Pretraining
from runs import training_command


def define_flags() -> flags.FlagValues:
    """The flags of Google's run_pretraining.py, and others."""
    values = flags.FlagValues()
    for name, text in (
            ("input_file", "TFRecord files of examples, comma-separated: names, patterns and "
             "directories."),
            ("eval_input_file", "Files of held-out examples to evaluate on, like --input_file; by "
             "default --input_file itself."),
            ("bert_config_file", "bert_config.json of the model; default: that in the folder of "
             "--init_checkpoint."),
            ("vocab_file", "The model's vocabulary, which --output_dir gets too; default: that "
             "beside --init_checkpoint or --bert_config_file."),
            ("init_checkpoint", "Model to start from (folder, or prefix of a checkpoint), by "
             "default random values.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_integer("max_seq_length", 128, "Tokens per example; the same as in the files.",
                         flag_values=values)
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked tokens per example; at least as "
                         "many as in the files.", flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on --input_file.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate on --eval_input_file.", flag_values=values)
    flags.DEFINE_integer("max_eval_steps", None, "Evaluation steps of --eval_batch_size "
                         "examples per replica; by default all examples are evaluated.",
                         flag_values=values)
    define_run_flags(values, StepSchedule)
    values.set_default("metric_for_best", LOSS)
    settings.define_flags(values, device_flags.DeviceSettings)
    settings.define_flags(values, device_flags.TpuSettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains and evaluates, as the flags ask."""
    training_command.run(values, Pretraining, _model)


def _model(values: flags.FlagValues) -> Pretraining:
    """The model and, for a training, its vocabulary."""
    folder = None
    if values.init_checkpoint:
        folder = model_files.open_folder(values.init_checkpoint, "--init_checkpoint")
    config = model_flags.load_config_of_flags(values, folder)
    return Pretraining(config, _vocabulary(values, config) if values.do_train else None)


def _vocabulary(values: flags.FlagValues, config: BertConfig) -> Optional[Encoding]:
    """The vocabulary of --vocab_file, or vocab.txt beside the config; None, with a warning, if it does not fit."""
    examples = pretraining_tfrecords.find(required(values, "input_file"), "--input_file")
    path = model_flags.find_vocabulary(values) or os.path.join(
        os.path.dirname(values.bert_config_file or ""), vocabulary.FILE)
    try:
        do_lower_case = check_vocab(examples, path)
        tokens = vocabulary.read_tokens(path, config.vocab_size)
        if do_lower_case is None:
            do_lower_case = vocabulary.read_casing(os.path.dirname(path), tokens)
        # No tokenizer: the examples have ids already.
        return Encoding(None, path, vocabulary.content_hash(path), do_lower_case,
                        values.max_seq_length)
    except UserError as error:
        if values.vocab_file:
            raise
        log.warn(f"--output_dir gets no {vocabulary.FILE}, which commands that read texts need: "
                 f"{error}; give --vocab_file")
        return None


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

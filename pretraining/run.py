"""Pretrains BERT on examples in TFRecord files, on every GPU that is visible.

  python -m pretraining.run --input_file='books.tfrecord*' --eval_input_file=held_out.tfrecord \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out --do_train --do_eval --num_train_steps=20000 --num_gpus=4

The files are those of pretraining.create_data or of the original. Flags and eval_results.txt
are those of the original's run_pretraining. Batch sizes are per replica (GPU); steps are
as given, not divided: with N replicas a step takes N times as many examples. What comes of
it, run_classifier.py takes as --init_checkpoint.
"""

import contextlib
import os
from typing import Optional, Tuple

from absl import flags

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from encoder.config import load_config_of_flags
from encoder.pretraining_tfrecords import Sizes
from engine import checkpoints, command, files, log, run_flags
from engine.errors import UserError
from engine.training.loop import MOST_STEPS, TrainingSettings
from pretraining import evaluation, training
from pretraining.data import RecordSet, load_records
from pretraining.training import Job


def define_flags() -> flags.FlagValues:
    """The original's flags of run_pretraining, and ours."""
    values = flags.FlagValues()
    flags.DEFINE_string("input_file", None, "TFRecord files of examples, comma-separated: names, "
                        "patterns and directories.", flag_values=values)
    flags.DEFINE_string("eval_input_file", None, "The same, of held-out examples, to evaluate on; "
                        "--input_file where left out.", flag_values=values)
    flags.DEFINE_string("bert_config_file", None, "bert_config.json of the model.",
                        flag_values=values)
    flags.DEFINE_string("vocab_file", None, "The model's vocabulary; for examples whose masks are "
                        "drawn while training.", flag_values=values)
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.",
                        flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, "Checkpoint to start from (prefix or directory); "
                        "random values where left out.", flag_values=values)
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of an example, as the files have it.",
                         flag_values=values)
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked tokens of an example, at least as "
                         "many as the files have.", flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on --input_file.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate on --eval_input_file.", flag_values=values)
    flags.DEFINE_integer("num_train_steps", 100000, "Training steps.", flag_values=values)
    flags.DEFINE_integer("num_warmup_steps", 10000, "Steps over which the learning rate rises.",
                         flag_values=values)
    flags.DEFINE_integer("max_eval_steps", None, "Evaluate so many times --eval_batch_size "
                         "examples per replica; all where left out.", flag_values=values)
    run_flags.define_training_flags(values)
    for name in ("warmup_proportion", "predict_batch_size"):
        delattr(values, name)  # the warm-up is said in steps, and nothing is predicted
    run_flags.define_evaluation_flags(values)
    values.set_default("metric_for_best", evaluation.LOSS)
    run_flags.define_device_flags(values)
    run_flags.define_tpu_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains and evaluates, as the flags ask."""
    if not (values.do_train or values.do_eval):
        raise UserError("nothing to do: set at least one of --do_train and --do_eval; --help "
                        "explains all flags")
    run_flags.check_tpu_flags(values)
    this = _job(values)
    train_records, eval_records = _records(values, this)
    with contextlib.ExitStack() as stack:
        evaluate = None
        if eval_records:
            evaluate = stack.enter_context(evaluation.evaluator(this, eval_records))
        if train_records:
            training.train(this, train_records, evaluate)
        if eval_records:
            evaluation.evaluate_and_write(this, eval_records, evaluate)


def _job(values: flags.FlagValues) -> Job:
    """Checks what the flags say; the output directory is made last, when all is well."""
    config = load_config_of_flags(values)
    return Job(
        config=config,
        devices=run_flags.find_devices(values, training=values.do_train),
        init_checkpoint=(checkpoints.open_checkpoint(values.init_checkpoint)
                         if values.init_checkpoint else None),
        allow_batch_change=values.allow_batch_change,
        evaluation=run_flags.evaluation_settings(values, evaluation.METRICS, evaluation.LOSS),
        per_replica_eval_batch_size=run_flags.positive(values, "eval_batch_size"),
        max_eval_steps=(run_flags.positive(values, "max_eval_steps")
                        if values["max_eval_steps"].present else None),
        training=_training_settings(values))


def _training_settings(values: flags.FlagValues) -> TrainingSettings:
    return TrainingSettings(
        num_train_steps=run_flags.in_range(values, "num_train_steps", 1, MOST_STEPS),
        warmup_steps=run_flags.in_range(values, "num_warmup_steps", 0, 2**31 - 1),
        learning_rate=run_flags.positive(values, "learning_rate"),
        optimizer=values.optimizer,
        layer_lr_decay=run_flags.in_range(values, "layer_lr_decay", 0.01, 1),
        per_replica_batch_size=run_flags.positive(values, "train_batch_size"),
        gradient_accumulation_steps=run_flags.positive(values, "gradient_accumulation_steps"),
        fp16=values.fp16,
        recompute_layers=values.recompute_layers,
        xla=values.xla,
        seed=run_flags.in_range(values, "seed", 0, 2**31 - 1),
        save_checkpoints_steps=run_flags.positive(values, "save_checkpoints_steps"),
        keep_checkpoint_max=run_flags.positive(values, "keep_checkpoint_max"),
        output_dir=files.make_directory(
            run_flags.required(values, "output_dir"), "--output_dir"))


def _records(values: flags.FlagValues,
             this: Job) -> Tuple[Optional[RecordSet], Optional[RecordSet]]:
    """What to train and to evaluate on; all of it is read before the first is used."""
    store_dir = files.make_directory(
        values.store_dir or os.path.join(this.output_dir, "store"), "--store_dir")
    sizes = Sizes(values.max_seq_length, run_flags.positive(values, "max_predictions_per_seq"),
                  this.config.vocab_size)

    def load(flag: str) -> RecordSet:
        return load_records(run_flags.required(values, flag), f"--{flag}", sizes, store_dir,
                            vocab_file=values.vocab_file, dynamic_padding=values.dynamic_padding)

    train_records = load("input_file") if values.do_train else None
    if not values.do_eval:
        return train_records, None
    if values.eval_input_file:
        eval_records = load("eval_input_file")
    else:
        log.warn("no --eval_input_file: the evaluation is on --input_file, not on held-out text")
        eval_records = train_records or load("input_file")
    chosen = this.evaluation and this.evaluation.metric
    if chosen == evaluation.NEXT_SENTENCE_ACCURACY and not all(
            records.has_next_sentences for records in (train_records, eval_records) if records):
        raise UserError(f"--metric_for_best={chosen}: the examples have no labels of next "
                        "sentences, or all the same")
    return train_records, eval_records


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

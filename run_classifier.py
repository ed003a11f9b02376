"""Fine-tunes BERT on a classification or regression task, on every GPU that is visible.

The command of google-research/bert with its flags, plus --num_gpus; see README.md.
"""

import os
from typing import Optional, Tuple

from absl import flags

from engine import runtime  # before anything that imports TensorFlow

import modeling
import tokenization
from engine import checkpoints, command, files, run_flags, saved_model
from engine.errors import UserError
from tasks import export, finetuning, kinds, own_data, processors, run_report, scoring, trained
from tasks.classifier import load_config
from tasks.examples import Encoding, load_encoding
from tasks.finetuning import Job, Settings
from tasks.processors import DataProcessor, InputExample  # noqa: F401 (for users' processors)
from tasks.table import TASKS, Task, find_task

# --task_name of a task that is made of a user's own files.
OWN_DATA = "file"

USAGE = """Fine-tunes BERT on a task, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python run_classifier.py --task_name=cola --data_dir=glue/CoLA --do_train --do_eval \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out --num_gpus=4

Batch sizes are per replica (GPU); the number of steps is divided by the number of replicas."""


def define_flags() -> flags.FlagValues:
    """Google's flags of this command, and ours."""
    values = flags.FlagValues()
    flags.DEFINE_string("data_dir", None, "Directory with the task's .tsv files.",
                        flag_values=values)
    flags.DEFINE_string("bert_config_file", None, "bert_config.json of the pretrained model.",
                        flag_values=values)
    flags.DEFINE_string("task_name", None, f"One of {', '.join(sorted(TASKS))}; or {OWN_DATA}, "
                        "for a file of your own.", flag_values=values)
    flags.DEFINE_string("processor", None, "In place of --task_name: path/to/file.py:ClassName "
                        "of a DataProcessor.", flag_values=values)
    flags.DEFINE_string("vocab_file", None, "Vocabulary of the pretrained model.",
                        flag_values=values)
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.",
                        flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, "Checkpoint to start from (prefix or directory).",
                        flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; true for uncased models.",
                      flag_values=values)
    flags.DEFINE_integer("max_seq_length", 128, "Longest input in tokens; longer texts are cut.",
                         flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on the training set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Predict the test set.", flag_values=values)
    flags.DEFINE_bool("do_export", False, "Write the trained model to <output_dir>/export, as a "
                      "SavedModel; needs no other flag than --output_dir.", flag_values=values)
    flags.DEFINE_enum("export_frozen_graph", None, list(saved_model.FLOAT_TYPES), "With "
                      "--do_export: one file with the weights in it too, of this type.",
                      flag_values=values)
    flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.",
                       flag_values=values)
    own_data.define_flags(values)
    run_flags.define_training_flags(values)
    run_flags.define_evaluation_flags(values)
    run_flags.define_device_flags(values)
    run_flags.define_tpu_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    scores_something = values.do_eval or values.do_predict
    if not (values.do_train or scores_something or values.do_export):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_predict, "
                        "--do_export; --help explains all flags")
    run_flags.check_tpu_flags(values)
    _check_export(values)
    if values.do_train or scores_something:
        _run(values)
    if values.do_export:
        export.write(values.output_dir, values.export_frozen_graph)


def _check_export(values: flags.FlagValues) -> None:
    """Raises a UserError for what would stop an export after hours of training."""
    if values.export_frozen_graph and not values.do_export:
        raise UserError("--export_frozen_graph is for --do_export, which is not set")
    if values.do_export:
        export.target(run_flags.required(values, "output_dir"))
        if not values.do_train:
            trained.checkpoint_of(values.output_dir)


def _run(values: flags.FlagValues) -> None:
    job = _job(values)
    data = finetuning.load_data(job, do_train=values.do_train, do_eval=values.do_eval,
                                do_predict=values.do_predict)
    if values.do_train:
        with scoring.evaluator(job, data.dev) as evaluate:
            finetuning.train(job, data.train, evaluate)
    evaluation = None
    if values.do_eval or values.do_predict:
        evaluation = scoring.score(job, data)
    if values.do_train or values.do_eval:
        run_report.write(job, evaluation)


def _job(values: flags.FlagValues) -> Job:
    """Checks what the flags say; the output directory is made last, when all is well."""
    task_name, task = _task(values)
    config, encoding = _model(values)
    if values.xla:
        runtime.prepare_xla()
    devices = run_flags.find_devices(values)
    return Job(task_name, task, config, encoding, devices, _settings(values, task))


def _task(values: flags.FlagValues) -> Tuple[str, Task]:
    if values.processor and values.task_name:
        raise UserError(f"--processor={values.processor} and --task_name={values.task_name}: give "
                        "one of them")
    if values.processor or values.task_name != OWN_DATA:
        given = [name for name in own_data.Options._fields
                 if name != "data_dir" and values[name].present]
        if given:
            raise UserError(f"--{given[0]} is for --task_name={OWN_DATA} alone")
    if values.processor:
        return values.processor, processors.make_task(values.processor)
    name = run_flags.required(values, "task_name")
    if name != OWN_DATA:
        return find_task(name)
    sets = [name for name, wanted in (("train", values.do_train), ("dev", values.do_eval),
                                      ("test", values.do_predict)) if wanted]
    known = None if values.do_train else _known_model(values)
    return OWN_DATA, own_data.make_task(own_data.Options.of_flags(values), sets, *(known or ()))


def _known_model(values: flags.FlagValues) -> Optional[Tuple[kinds.Kind, bool]]:
    """What is known of the labels of the model that is scored; see `trained.known`."""
    given = values.init_checkpoint or ""
    places = (values.output_dir, given, os.path.dirname(given))
    return next(filter(None, (trained.known(place) for place in places if place)), None)


def _settings(values: flags.FlagValues, task: Task) -> Settings:
    return Settings(
        data_dir=("" if values.task_name == OWN_DATA
                  else run_flags.required(values, "data_dir")),
        init_checkpoint=(checkpoints.open_checkpoint(values.init_checkpoint)
                         if values.init_checkpoint else None),
        batch_sizes=run_flags.batch_sizes(values),
        gradient_accumulation_steps=run_flags.positive(values, "gradient_accumulation_steps"),
        num_train_epochs=run_flags.positive(values, "num_train_epochs"),
        learning_rate=run_flags.positive(values, "learning_rate"),
        optimizer=values.optimizer,
        layer_lr_decay=run_flags.in_range(values, "layer_lr_decay", 0.01, 1),
        fp16=values.fp16,
        recompute_layers=values.recompute_layers,
        warmup_proportion=run_flags.in_range(values, "warmup_proportion", 0, 1),
        save_checkpoints_steps=run_flags.positive(values, "save_checkpoints_steps"),
        keep_checkpoint_max=run_flags.positive(values, "keep_checkpoint_max"),
        seed=run_flags.in_range(values, "seed", 0, 2**31 - 1),
        dynamic_padding=values.dynamic_padding,
        xla=values.xla,
        allow_batch_change=values.allow_batch_change,
        evaluation=run_flags.evaluation_settings(
            values, [metric.name for metric in task.metrics]),
        output_dir=files.make_directory(
            run_flags.required(values, "output_dir"), "--output_dir"),
        store_dir=files.make_directory(
            values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir"))


def _model(values: flags.FlagValues) -> Tuple[modeling.BertConfig, Encoding]:
    """The model's config and vocabulary, held against each other and against the flags."""
    config = load_config(run_flags.required(values, "bert_config_file"))
    if values.max_seq_length > config.max_position_embeddings:
        raise UserError(f"--max_seq_length={values.max_seq_length}: the model has only "
                        f"{config.max_position_embeddings} positions (--bert_config_file)")
    encoding = load_encoding(
        run_flags.required(values, "vocab_file"), do_lower_case=values.do_lower_case,
        max_seq_length=values.max_seq_length, vocab_size=config.vocab_size)
    try:
        tokenization.validate_case_matches_checkpoint(
            values.do_lower_case, values.init_checkpoint)
    except ValueError as error:
        raise UserError(str(error)) from error
    return config, encoding


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Fine-tunes BERT on a classification or regression task, on every visible GPU.

Its flags are those of google-research/bert's run_classifier.py and more; see README.md.
"""

from typing import Optional, Tuple

from absl import flags

from encoder import model_files, model_flags
from encoder.long_texts import LongTexts
from engine import command, device_flags, settings, tpu_flags
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, run_settings
from tasks import (
    capabilities, class_weights, evaluation, export, model_folder, report, task_flags, training)
from tasks.class_weights import ClassSettings
from tasks.google_interface import (  # noqa: F401 (for programs that import them from here)
    ColaProcessor, InputFeatures, MnliProcessor, MrpcProcessor, PaddingInputExample, XnliProcessor,
    convert_examples_to_features, convert_single_example, create_model,
    file_based_convert_examples_to_features, file_based_input_fn_builder, input_fn_builder,
    model_fn_builder)
from tasks.processors import DataProcessor, InputExample  # noqa: F401 (the same)
from tasks.table import Task
from tasks.training import Job

USAGE = """Fine-tunes BERT on a task, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python run_classifier.py --task_name=cola --data_dir=glue/CoLA --do_train --do_eval \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out --num_gpus=4

Batch sizes are per replica (GPU); the number of steps is divided by the number of replicas."""


def define_flags() -> flags.FlagValues:
    """The flags of Google's run_classifier.py, and others."""
    values = flags.FlagValues()
    task_flags.define(values)
    flags.DEFINE_bool("do_train", False, "Train on the training set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Predict the labels of the test set.",
                      flag_values=values)
    evaluation.define_flags(values)
    export.define_flags(values)
    training.define_flags(values)
    settings.define_flags(values, ClassSettings)
    settings.define_flags(values, LongTexts)
    settings.define_flags(values, PredictionSettings)
    device_flags.define_for_training(values)
    tpu_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    evaluates_or_predicts = values.do_eval or values.do_predict
    if not (values.do_train or evaluates_or_predicts or values.do_export):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_predict, "
                        "--do_export; --help explains all flags")
    tpu_flags.check(values)
    if values.do_export and not values.do_train:
        _describe(values)
    export.check_flags(values)
    if values.do_train or evaluates_or_predicts:
        _run(values)
    if values.do_export:
        export.write(values.output_dir, values.export_frozen_graph)


def _describe(values: flags.FlagValues) -> None:
    """Makes a folder that another program trained one of ours, if --task_name gives its labels.

    Raises a UserError if the folder's labels are not those of --task_name.
    """
    output_dir = settings.required(values, "output_dir")
    model = model_files.open_model(output_dir, "--output_dir", model_files.CLASSIFIER)
    labels = task_flags.fixed_labels(values)
    if not labels:
        return
    known = model_folder.labels_beside(model.checkpoint, "--output_dir")
    if known:
        model_folder.check_labels(known, labels.kind, output_dir, "--output_dir")
    if not model.description():
        model_files.check_outputs(model.checkpoint, labels.kind.num_outputs, "--output_dir")
        model_folder.write(output_dir, labels, *model_flags.load_model(values))


def _run(values: flags.FlagValues) -> None:
    prediction = settings.from_flags(values, PredictionSettings)
    job = _job(values)
    training.check_checkpoints(job)
    if not values.do_train:
        evaluation.trained_checkpoint(job)  # before texts are tokenized for nothing
    data = training.load_data(job, do_train=values.do_train, do_eval=values.do_eval,
                              do_predict=values.do_predict)
    if values.do_train:
        with evaluation.evaluator(job, data.dev) as evaluate:
            training.train(job, data.train, evaluate)
    result = None
    if values.do_eval or values.do_predict:
        result = evaluation.score(job, data, prediction.predict_batch_size, values.predict_labels)
    if values.do_train or values.do_eval:
        report.write(job, result)


def _job(values: flags.FlagValues) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    task_name, task = _task(values)
    own = settings.from_flags(values, ClassSettings)
    class_weights.parse(own.class_weights, task.kind)
    config, encoding = model_flags.load_model(values)
    devices = device_flags.find_devices(values, training=values.do_train)
    data_dir = task_flags.data_dir(values)
    of_run = run_settings(values, EpochSchedule, [metric.name for metric in task.metrics])
    return Job(task_name, task, config, encoding, devices, of_run._replace(own=own), data_dir)


def _task(values: flags.FlagValues) -> Tuple[str, Task]:
    sets = [name for name, wanted in (("train", values.do_train), ("dev", values.do_eval),
                                      ("test", values.do_predict)) if wanted]
    return task_flags.find(values, sets, None if values.do_train else _saved_labels(values))


def _saved_labels(values: flags.FlagValues) -> Optional[model_folder.Labels]:
    """`model_folder.saved_labels` of the model to evaluate; None if it has no description.

    Raises a UserError if the model reads something else than texts.
    """
    for flag in ("output_dir", "init_checkpoint"):
        path = values[flag].value
        labels = model_folder.saved_labels(path) if path else None
        capability = capabilities.of_model(labels.kind) if labels else None
        if capability:
            raise UserError(f"--{flag}={path} reads {capability.reading.examples}, not texts: "
                            f"its command is {capability.command}, with --{flag}={path} and "
                            "--do_eval or --do_predict")
        if labels:
            return labels
    return None


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

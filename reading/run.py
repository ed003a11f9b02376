"""Trains a model that finds the answers to questions in a text, and answers questions with it.

  python run_squad.py --train_file=train-v1.1.json --do_train ...
"""

import dataclasses
import os
from typing import Optional, Type

from absl import flags

from encoder import label_config, model_files, model_flags
from engine import device_flags, settings, tpu_flags
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, define_run_flags, run_settings
from reading import data, evaluation, export, training
from reading.answers import AnswerSettings
from reading.data import QuestionSet, WindowSettings
from reading.training import Job
from tasks import export as task_export, kinds

USAGE = """Trains BERT to find the answers to questions in a text, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json --do_train \\
    --do_predict --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out --num_gpus=4

The files are in SQuAD's format; --version_2_with_negative is for SQuAD 2.0. --do_predict writes
predictions.json, nbest_predictions.json and null_odds.json, and, if the file has the right answers,
their scores to eval_results.txt, as --do_eval does.
Batch sizes are per replica (GPU) and count windows of --max_seq_length tokens; the number of steps is
divided by the number of replicas."""


def define_flags() -> flags.FlagValues:
    """The flags of Google's run_squad.py, and others."""
    values = flags.FlagValues()
    flags.DEFINE_string("train_file", None, "Questions to train on, in SQuAD's format.",
                        flag_values=values)
    flags.DEFINE_string("predict_file", None, "Questions to answer, in SQuAD's format.",
                        flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on --train_file.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.",
                      flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Score the answers to the questions of --predict_file, "
                      "which has the right ones.", flag_values=values)
    task_export.define_flags(values)
    flags.DEFINE_enum("measure", "squad", list(evaluation.MEASURES), "How answers are compared: "
                      "squad: by English words, as SQuAD's scripts do; cmrc: by Chinese "
                      "characters, as that of CMRC 2018.", flag_values=values)
    model_flags.define(values, "the model to start from")
    flags.DEFINE_integer("max_seq_length", 384, "Longest window in tokens, with the question; of a "
                         "longer context there are several.", flag_values=values)
    define_run_flags(values, EpochSchedule)
    for cls in (WindowSettings, AnswerSettings, PredictionSettings):
        settings.define_flags(values, cls)
    device_flags.define_for_training(values)
    tpu_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, answers, scores and exports, as the flags ask."""
    answers = values.do_predict or values.do_eval
    if not (values.do_train or answers or values.do_export):
        raise UserError("nothing to do: set at least one of --do_train, --do_predict, --do_eval, "
                        "--do_export; --help explains all flags")
    tpu_flags.check(values)
    export.check_flags(values)
    if values.do_train or answers:
        _run(values)
    if values.do_export:
        export.write(values.output_dir, values.export_frozen_graph)


def _run(values: flags.FlagValues) -> None:
    prediction = settings.from_flags(values, PredictionSettings)
    job = _job(values)
    if not values.do_train:
        evaluation.trained_checkpoint(job)  # before texts are tokenized for nothing
    # All are loaded before the training, so that it does not end in an error about a bad file.
    train, held_out = _load_train(values, job), _load_held_out(values, job)
    if train:
        with evaluation.evaluator(job, held_out) as evaluate:
            training.train(job, train, evaluate)
    if held_out:
        batch_size = (prediction.predict_batch_size if values.do_predict else
                      job.settings.evaluation.eval_batch_size)
        evaluation.score(job, held_out, batch_size, writes_predictions=values.do_predict)


def _job(values: flags.FlagValues) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    spans = _settings(values, WindowSettings)
    config, encoding = model_flags.load_model(values)
    spans.check(encoding.max_seq_length)
    answers = _settings(values, AnswerSettings)
    devices = device_flags.find_devices(values, training=values.do_train)
    for name, wanted in (("train_file", values.do_train),
                         ("predict_file", values.do_predict or values.do_eval)):
        if wanted:
            settings.required(values, name)
    metrics = evaluation.metrics(spans.version_2_with_negative)
    return Job(config, encoding, devices, run_settings(values, EpochSchedule, metrics, loss=None),
               spans, answers, _measure(values))


def _settings(values: flags.FlagValues, cls: Type[settings.Settings]) -> settings.Settings:
    """The settings that the flags give, and those of the trained model where they give none."""
    given, trained = settings.from_flags(values, cls), _trained_model(values)
    if not trained:
        return given
    return dataclasses.replace(
        training.described(cls, os.path.join(trained, label_config.FILE)),
        **{field.name: getattr(given, field.name) for field in dataclasses.fields(cls)
           if values[field.name].present})


def _measure(values: flags.FlagValues) -> str:
    """What the flag gives, and that of the trained model where it gives none."""
    trained = _trained_model(values)
    if not trained or values["measure"].present:
        return values.measure
    description = label_config.read(trained) or {}
    measure = description.get("measure", values.measure)  # older models do not have it
    if measure not in list(evaluation.MEASURES):
        raise UserError(f"{os.path.join(trained, label_config.FILE)} is damaged: measure is "
                        f"{measure!r}")
    return measure


def _trained_model(values: flags.FlagValues) -> Optional[str]:
    """The folder of the model that answers without being trained; None if there is none.

    Raises:
        UserError: the folder's model does something else.
    """
    if values.do_train:
        return None
    for flag in ("output_dir", "init_checkpoint"):
        path = values[flag].value
        folder = path and model_files.folder_of(path)
        kind = folder and (label_config.read(folder) or {}).get("kind")
        if kind == kinds.ANSWERS:
            return folder
        if kind:
            raise UserError(f"--{flag}={path} does not answer questions: its {label_config.FILE} "
                            f"names the kind {kind!r}; train it first (--do_train)")
    return None


def _load_train(values: flags.FlagValues, job: Job) -> Optional[QuestionSet]:
    if not values.do_train:
        return None
    questions = _load(job, values.train_file, is_training=True)
    # Too few examples are reported before the other file is read.
    job.settings.schedule(len(questions), job.devices.num_replicas)
    return questions


def _load_held_out(values: flags.FlagValues, job: Job) -> Optional[QuestionSet]:
    if not (values.do_predict or values.do_eval):
        return None
    questions = _load(job, values.predict_file, is_training=False)
    if values.do_eval and not questions.is_labelled:
        raise UserError(f"--do_eval: --predict_file={values.predict_file} does not have the "
                        "answers of all questions; --do_predict answers them")
    return questions


def _load(job: Job, path: str, *, is_training: bool) -> QuestionSet:
    return data.load(path, job.encoding, job.windows, job.settings.store_dir,
                     is_training=is_training,
                     dynamic_padding=job.settings.training.dynamic_padding)

"""Distils a big BERT into a small one, on every visible GPU.

TinyBERT (Jiao et al., https://arxiv.org/abs/1909.10351) has two stages for a task: the student
learns the teacher's attention, states and embeddings, then its logits. Before them, it may learn
from a pretrained teacher on any text (general distillation).
"""

from typing import Optional, Sequence, Tuple

from absl import flags

from distillation import data, student, teacher
from distillation.student import Student
from distillation.teacher import Teacher
from distillation.training import (
    GENERAL, INTERMEDIATE, PREDICTION, STAGES, Distillation, train_in_general)
from encoder.encoding import Encoding
from engine import log, settings
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import command, device_flags
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, RunSettings, define_run_flags, run_settings
from runs import command as runs
from runs.head import Job, Model, Sets
from tasks import capabilities, head, model_folder, task_flags, user_files
from tasks.capabilities import Capability
from tasks.table import TASKS, Task

USAGE = """Distils a fine-tuned big BERT into a small one, on every GPU that CUDA_VISIBLE_DEVICES
shows.

  python -m distillation.run --stage=intermediate --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=4,312,12,1200 --do_train --output_dir=stage1
  python -m distillation.run --stage=prediction --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=stage1 --do_train --do_eval --eval_each_epoch --output_dir=student

The last directory is like an output directory of run_classifier.py, which can evaluate, predict
and export the student; runs.predict takes it, too. --train_file= takes an augmented training
file. If the teacher is a scorer of rewriting.run, --data_dir holds its training set, and there is
no --task_name.

General distillation from a pretrained model, on pretraining examples, can come first:

  python -m distillation.run --stage=general --input_file='books.tfrecord*' --teacher=$BERT \\
    --student=4,312,12,1200 --do_train --output_dir=general"""

# Epochs of the intermediate stage, where they are not 20 (section 4.2 of the paper).
_EPOCHS = {"cola": 50, "mnli": 10, "qnli": 10, "qqp": 10, "xnli": 10}
_LONGEST_TEXT, _LONGEST_PAIR = 64, 128  # in tokens
_LEARNING_RATES = {GENERAL: 5e-5, INTERMEDIATE: 5e-5, PREDICTION: 3e-5}


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_enum("stage", None, list(STAGES), "What the student learns: the teacher's "
                      "embeddings, states and attention, without a task (general) or with one "
                      "(intermediate); or the teacher's logits (prediction).", flag_values=values)
    flags.DEFINE_string("teacher", None, "Folder of the trained classifier, or its export; for "
                        "--stage=general, of any model.", flag_values=values)
    flags.DEFINE_string("input_file", None, "For --stage=general: TFRecord files of pretraining "
                        "examples, comma-separated: names, patterns and directories.",
                        flag_values=values)
    flags.DEFINE_string("student", None, "The student: the folder of a model, such as the "
                        "--output_dir of an earlier stage, or a shape for a new one: "
                        "layers,hidden,heads,intermediate.", flag_values=values)
    flags.DEFINE_enum("student_init", "teacher", ["teacher", "random"], "Initial values of a "
                      "student given as a shape: the teacher's for variables of the same shape, or "
                      "random ones.", flag_values=values)
    flags.DEFINE_string("layer_map", None, "For each layer of the student, the layer of the "
                        "teacher that it learns from, counted from 1, such as 3,6,9,12; by "
                        "default spread evenly.", flag_values=values)
    flags.DEFINE_bool("attention_loss", True, "Also learn the attention scores; both models then "
                      "need the same number of heads.", flag_values=values)
    flags.DEFINE_float("temperature", 1.0, "Temperature of the softmax in the loss of "
                       "--stage=prediction.", flag_values=values)
    flags.DEFINE_float("label_weight", 0.0, "Weight, from 0 to 1, of the loss on the labels in "
                       "--stage=prediction.", flag_values=values)
    task_flags.define(values)
    flags.DEFINE_bool("do_train", False, "Train the student.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate the student on the dev set; only with "
                      "--stage=prediction.", flag_values=values)
    flags.DEFINE_integer("max_seq_length", None, "Longest input in tokens; by default as in the "
                         "paper: 64, or 128 for pairs and --stage=general; for files of your own, "
                         "the teacher's.", flag_values=values)
    define_run_flags(values, EpochSchedule)
    settings.define_flags(values, PredictionSettings)
    device_flags.define_for_training(values)
    _set_default_of_stage(values, "num_train_epochs", "Passes over the training set; by default "
                          "as in the paper: for --stage=intermediate 20 (10 for the large tasks, "
                          "50 for cola), for the other stages 3.")
    _set_default_of_stage(values, "learning_rate", "Peak learning rate, by default 5e-5, or 3e-5 "
                          "for --stage=prediction.")
    return values


def _set_default_of_stage(values: flags.FlagValues, name: str, help_text: str) -> None:
    values.set_default(name, None)
    values[name].help = help_text


def main(values: flags.FlagValues) -> None:
    """Trains and evaluates the student, as the flags ask."""
    _check_flags(values)
    if values.stage == GENERAL:
        _distil_in_general(values)
        return
    job, distillation = _job(values)
    if values.stage == PREDICTION:
        runs.check_start(job, is_training=values.do_train)
    capability = capabilities.of_model(job.model.own.kind)
    if capability:
        examples = capability.load_training_set(job, values)
        sets = Sets(distillation.training(job, examples))
    else:
        sets = head.load(job, values, distillation.training)
    runs.carry_out(job, sets)


def _check_flags(values: flags.FlagValues) -> None:
    settings.required(values, "stage")
    if not (values.do_train or values.do_eval):
        raise UserError("nothing to do: set --do_train, --do_eval or both; --help explains all "
                        "flags")
    if values.stage != PREDICTION:
        for name in ("do_eval", "eval_every_steps", "eval_each_epoch"):
            if values[name].value:
                raise UserError(f"--{name} needs a classifier, which --stage={values.stage} does "
                                "not make yet: evaluate after --stage=prediction")
    if values.test_file:
        raise UserError("--test_file: this command does not predict; the student does with python "
                        f"-m runs.predict --input_file={values.test_file} --output_dir=STUDENT")
    if values.input_file and values.stage != GENERAL:
        raise UserError("--input_file is for --stage=general; a task's texts are in --data_dir")
    without_effect = (("attention_loss",) if values.stage == PREDICTION
                      else ("temperature", "label_weight"))
    for name in without_effect:
        if values[name].present:
            raise UserError(f"--{name} has no effect on the loss of --stage={values.stage}")


def _distil_in_general(values: flags.FlagValues) -> None:
    for name in ("task_name", "processor", *user_files.FLAGS):
        if values[name].present:
            raise UserError(f"--{name} is for a task, and --stage=general has none: its texts are "
                            "in --input_file")
    directory = settings.required(values, "teacher")
    the_teacher = teacher.load_encoder(directory, values.max_seq_length or _LONGEST_PAIR)
    the_student, distillation = _student_and_distillation(values, the_teacher)
    encoding = _encoding(values, the_teacher, the_student, _LONGEST_PAIR)
    patterns = settings.required(values, "input_file")
    devices, run = _devices_and_settings(values, the_student, distillation)
    texts = data.open_texts(patterns, encoding, the_teacher.config.vocab_size, run.store_dir)
    train_in_general(distillation, texts, the_student.config, encoding, devices, run)


def _job(values: flags.FlagValues) -> Tuple[Job, Distillation]:
    """Checks the flags; makes the output directory only if they are correct."""
    the_teacher = teacher.load(settings.required(values, "teacher"),
                               task_flags.fixed_labels(values))
    task_name, task = _task(values, the_teacher)
    the_student, distillation = _student_and_distillation(values, the_teacher)
    longest = the_teacher.encoding.max_seq_length
    if task_name in TASKS:
        longest = _LONGEST_PAIR if the_teacher.takes_pairs else _LONGEST_TEXT
    encoding = _encoding(values, the_teacher, the_student, longest)
    data_dir = "" if capabilities.of_model(task.kind) else task_flags.data_dir(values)
    devices, run = _devices_and_settings(
        values, the_student, distillation, _EPOCHS.get(task_name, 20),
        [metric.name for metric in task.metrics])
    own = model_folder.Classification(task.kind, the_teacher.takes_pairs, task.trained_columns,
                                      task_name, task, data_dir)
    return Job(head.HEAD, Model(own, the_student.config, encoding), devices, run), distillation


def _student_and_distillation(values: flags.FlagValues,
                              the_teacher: Teacher) -> Tuple[Student, Distillation]:
    the_student = student.find(settings.required(values, "student"), the_teacher)
    if the_student.checkpoint and values["student_init"].present:
        raise UserError("--student_init is for a student given as a shape, and "
                        f"--student={values.student} is a model with values of its own")
    layer_map = ()
    takes_values = (the_student.checkpoint is None and values.student_init == "teacher"
                    and the_student.config.hidden_size == the_teacher.config.hidden_size)
    if values.stage != PREDICTION or takes_values:
        layer_map = student.layer_map(values.layer_map, the_student.config, the_teacher.config)
    elif values.layer_map:
        raise UserError(f"--layer_map has no effect in --stage={PREDICTION}: "
                        f"--student={values.student} does not start from the teacher's values")
    if values.stage != PREDICTION and values.attention_loss:
        _check_heads(the_student, the_teacher)
    return the_student, Distillation(
        values.stage, the_teacher, layer_map, values.attention_loss,
        settings.positive(values, "temperature"),
        settings.in_range(values, "label_weight", 0, 1),
        settings.from_flags(values, PredictionSettings).predict_batch_size)


def _devices_and_settings(values: flags.FlagValues, the_student: Student,
                          distillation: Distillation, epochs_of_intermediate_stage: int = 0,
                          metrics: Sequence[str] = ()) -> Tuple[Devices, RunSettings]:
    if values.num_train_epochs is None:
        values.num_train_epochs = (
            epochs_of_intermediate_stage if values.stage == INTERMEDIATE else 3)
    if values.learning_rate is None:
        values.learning_rate = _LEARNING_RATES[values.stage]
    devices = device_flags.find_devices(values, training=values.do_train)
    run = run_settings(values, devices, EpochSchedule, metrics)
    return devices, run._replace(
        init_checkpoint=_init_checkpoint(values, the_student, distillation))


def _task(values: flags.FlagValues, the_teacher: Teacher) -> Tuple[str, Task]:
    kind = the_teacher.kind
    capability = capabilities.of_model(kind)
    if capability:
        _check_flags_of(capability, values)
        return capability.task_name, Task(kind, metrics=())
    wanted = {"train": values.do_train, "dev": values.do_eval}
    sets = [name for name in wanted if wanted[name]]
    task_name, task = task_flags.find(values, sets, model_folder.Labels(
        kind, the_teacher.takes_pairs, the_teacher.trained_columns))
    model_folder.check_labels(kind, task.kind, values.teacher, "--teacher")
    return task_name, task


def _check_flags_of(capability: Capability, values: flags.FlagValues) -> None:
    """Raises a UserError for flags that need a task of texts."""
    task_flags.refuse_flags_of_texts(values, capability.command, f"--teacher={values.teacher}",
                                     "train")
    for name in ("do_eval", "eval_every_steps", "eval_each_epoch"):
        if values[name].value:
            raise UserError(f"--{name}: evaluate the student with {capability.command} --do_eval, "
                            f"as its teacher, --teacher={values.teacher}")


def _check_heads(the_student: Student, the_teacher: Teacher) -> None:
    student_heads, teacher_heads = (
        model.config.num_attention_heads for model in (the_student, the_teacher))
    if student_heads != teacher_heads:
        raise UserError(f"--student has {student_heads} attention heads and --teacher "
                        f"{teacher_heads}: give the student {teacher_heads}, or set "
                        "--attention_loss=false")


def _encoding(values: flags.FlagValues, the_teacher: Teacher, the_student: Student,
              default_length: int) -> Encoding:
    """The teacher's encoding, with --max_seq_length or else `default_length` tokens."""
    limit = min(model.config.max_position_embeddings for model in (the_teacher, the_student))
    length = values.max_seq_length
    if length is None:
        length = min(limit, default_length)
    if not 3 <= length <= limit:
        raise UserError(f"--max_seq_length={length}: must be between 3 and {limit}, the number of "
                        "positions that both models have")
    ways = the_teacher.encoding.long_texts.facts()
    if ways:
        log.info("Long texts are read as by the teacher: "
                 f"{' '.join(f'--{name}={value}' for name, value in ways.items())}")
    return the_teacher.encoding._replace(max_seq_length=length)


def _init_checkpoint(values: flags.FlagValues, the_student: Student,
                     distillation: Distillation) -> Optional[Checkpoint]:
    if the_student.checkpoint or values.student_init == "random":
        return the_student.checkpoint
    the_teacher = distillation.teacher
    found = student.initial_values(the_student.config, the_teacher, distillation.layer_map,
                                   with_head=distillation.stage == PREDICTION)
    if not found:
        log.warn(f"--student={values.student} has another hidden size than the teacher "
                 f"({the_teacher.config.hidden_size}): it starts from random values")
    return found


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

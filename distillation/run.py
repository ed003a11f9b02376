"""Distils a fine-tuned big BERT into a small one, on every GPU that CUDA_VISIBLE_DEVICES
shows.

  python -m distillation.run --stage=intermediate --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=4,312,12,1200 --do_train --output_dir=stage1
  python -m distillation.run --stage=prediction --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=stage1 --do_train --do_eval --eval_each_epoch --output_dir=student

The last directory is like an output directory of run_classifier.py, which can evaluate, predict
and export the student; runs.predict takes it, too. --train_file= takes an augmented training
file. If the teacher is a scorer of rewriting.run, --data_dir holds its training set, and there is
no --task_name. If it is a model of similarity.run, --train_file has texts, in any of its layouts;
the student learns the vectors of all of them.

General distillation from a pretrained model, on pretraining examples, can come first:

  python -m distillation.run --stage=general --input_file='books.tfrecord*' --teacher=$BERT \\
    --student=4,312,12,1200 --do_train --output_dir=general
"""

from typing import Iterable, Tuple

from absl import flags

from distillation import student as students, teacher as teachers
from distillation.student import Student
from distillation.teacher import Teacher
from distillation.training import (
    GENERAL, INTERMEDIATE, PREDICTION, Distillation, DistillationSettings, GeneralStudent)
from encoder import model_files, pretraining_tfrecords
from encoder.encoding import Encoding
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.cli import command, device_flags
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, define_run_flags
from engine.workers.coordination import Peers
from runs import export, kinds, output_layer, sets, training_command
from runs.capability import Capability, Job, Sets
from tasks import task_flags, user_files
from tasks.capability import Classifier
from tasks.table import TASKS

# Epochs of the intermediate stage, where they are not 20 (section 4.2 of the paper).
_EPOCHS = {"cola": 50, "mnli": 10, "qnli": 10, "qqp": 10, "xnli": 10}
_LONGEST_TEXT, _LONGEST_PAIR = 64, 128  # in tokens
# Flags of labelled texts, which a model for similarity does not learn from.
_OF_LABELS = ("task_name", "processor", "dev_file", "label_column", "label_kind", "label_separator",
              "temperature", "label_weight")
# Flags that need a classifier of a task of texts.
_OF_A_CLASSIFIER = ("do_eval", "do_export", "eval_every_steps", "eval_each_epoch")


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    settings.define_flags(values, DistillationSettings)
    flags.DEFINE_string("input_file", None, "For --stage=general: TFRecord files of pretraining "
                        "examples, comma-separated: names, patterns and directories.",
                        flag_values=values)
    flags.DEFINE_string("student", None, "The student: the folder of a model, such as the "
                        "--output_dir of an earlier stage, or a shape for a new one: "
                        "layers,hidden,heads,intermediate. One of the teacher's hidden size starts "
                        "from the teacher's values.", flag_values=values)
    task_flags.define(values, "Train the student.", "Evaluate the student on the dev set; only with --stage=prediction.")
    flags.DEFINE_integer("max_seq_length", None, "Longest input in tokens; by default as in the "
                         "paper: 64, or 128 for pairs and --stage=general; for files of your own, "
                         "the teacher's.", flag_values=values)
    export.define_flags(values)
    define_run_flags(values, EpochSchedule)
    settings.define_flags(values, PredictionSettings)
    settings.define_flags(values, device_flags.DeviceSettings)
    for name, text in (
            ("num_train_epochs", "Passes over the training set; by default as in the paper: for "
             "--stage=intermediate 20 (10 for the large tasks, 50 for cola), for the other stages "
             "3."),
            ("learning_rate", "Peak learning rate, by default 5e-5, or 3e-5 for "
             "--stage=prediction.")):
        values.set_default(name, None)  # the stage has its own
        values[name].help = text
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates and exports the student, as the flags ask."""
    if values.do_train or values.do_eval:
        _check_flags(values)
    training_command.run_prepared(values, Classifier, _general if values.stage == GENERAL else _with_task)


def _check_flags(values: flags.FlagValues) -> None:
    settings.required(values, "stage")
    if values.stage != PREDICTION:
        _refuse(values, _OF_A_CLASSIFIER, f"needs a classifier, which --stage={values.stage} does "
                "not make yet: evaluate after --stage=prediction")
    if values.test_file:
        raise UserError("--test_file: this command does not predict; the student does with python "
                        f"-m runs.predict --input_file={values.test_file} --output_dir=STUDENT")
    if values.input_file and values.stage != GENERAL:
        raise UserError("--input_file is for --stage=general; a task's texts are in --data_dir")
    _refuse(values, ("attention_loss",) if values.stage == PREDICTION else
            ("temperature", "label_weight"), f"has no effect on the loss of --stage={values.stage}")


def _refuse(values: flags.FlagValues, names: Iterable[str], why: str) -> None:
    """Raises a UserError if one of these flags is set."""
    for name in names:
        if values[name].value != values[name].default:
            raise UserError(f"--{name} {why}")


def _general(values: flags.FlagValues, peers: Peers) -> Tuple[Job, Sets]:
    """A student that learns on any texts."""
    _refuse(values, ("task_name", "processor", *user_files.FLAGS),
            "is for a task, and --stage=general has none: its texts are in --input_file")
    directory, patterns = (settings.required(values, name) for name in ("teacher", "input_file"))
    teacher = teachers.load_encoder(directory, values.max_seq_length or _LONGEST_PAIR)
    job, distillation = _job(
        values, peers, teacher, GeneralStudent(teacher.config, teacher.encoding), _LONGEST_PAIR)
    # Any number of masked tokens will do, as they are restored.
    length = job.model.encoding.max_seq_length
    sizes = pretraining_tfrecords.Sizes(length, max_predictions_per_seq=length,
                                        vocab_size=teacher.config.vocab_size)
    texts = pretraining_tfrecords.open_store(
        patterns, "--input_file", sizes, job.settings.store_dir)
    return job, Sets(distillation.general_training(job, texts))


def _with_task(values: flags.FlagValues, peers: Peers) -> Tuple[Job, Sets]:
    """A student that learns a task, and its sets."""
    teacher = teachers.load(settings.required(values, "teacher"))
    model, its_command = teacher.model, kinds.COMMANDS.get(teacher.kind)
    if teacher.outputs == "vectors":
        _refuse(values, _OF_LABELS, "is for a teacher with labels, and --teacher="
                f"{values.teacher} gives vectors of the texts of --train_file")
    if its_command:
        _refuse(values, _OF_A_CLASSIFIER, f"is for a classifier of texts: use {its_command} --do_eval "
                f"or --do_export for the student, as for its teacher, --teacher={values.teacher}")
    else:
        taught = model.classification
        model = model.replaced(classification=task_flags.find(values, sets.wanted(values), taught)._replace(
            takes_pairs=taught.takes_pairs))
        teacher = teacher._replace(checkpoint=output_layer.taken_over(
            model, teacher.checkpoint, "--teacher"))
    longest = teacher.encoding.max_seq_length
    if _task_name(model) in TASKS:
        of_pairs = len(TASKS[_task_name(model)].train.columns.texts) > 1
        longest = _LONGEST_PAIR if of_pairs else _LONGEST_TEXT
    job, distillation = _job(values, peers, teacher, model, longest)
    if values.stage == PREDICTION:
        job = training_command.started(job, is_training=values.do_train, flag="--student")
    return job, job.model.load(job, values, distillation.training)


def _job(values: flags.FlagValues, peers: Peers, teacher: Teacher, model: Capability, longest: int
         ) -> Tuple[Job, Distillation]:
    """Checks the flags of all stages; makes the output directory only if they are correct.

    Args:
        model: what the student becomes, still with the teacher's encoder.
        longest: the default of --max_seq_length.
    """
    if values.num_train_epochs is None:
        values.num_train_epochs = (
            _EPOCHS.get(_task_name(model), 20) if values.stage == INTERMEDIATE else 3)
    if values.learning_rate is None:
        values.learning_rate = 3e-5 if values.stage == PREDICTION else 5e-5
    learned = settings.from_flags(values, DistillationSettings)
    student = _student(values, teacher, learned)
    job = training_command.job_of(values, model.replaced(
        config=student.config, encoding=_encoding(values, teacher, student, longest), settings=[learned]), peers)
    initial = student.checkpoint
    if initial and values.do_train and not checkpoints.latest(job.settings.output_dir):
        initial = model_files.with_pooler(initial, student.config)  # the first stages do not read it, but keep it
    return job._replace(settings=job.settings._replace(init_checkpoint=initial)), Distillation(
        teacher, learned, job.predict_batch_size)


def _task_name(model: Capability) -> str:
    """The name of the task; "" without labels."""
    return model.classification.task_name if isinstance(model, Classifier) else ""


def _student(values: flags.FlagValues, teacher: Teacher, learned: DistillationSettings) -> Student:
    """The student and its initial values, if it can learn from the teacher."""
    student = students.find(settings.required(values, "student"), teacher)
    own, others, stage = student.config, teacher.config, learned.stage
    if teacher.outputs == "vectors" and own.hidden_size != others.hidden_size:
        raise UserError(f"--student gives vectors of {own.hidden_size} components and --teacher of "
                        f"{others.hidden_size}, and the loss is their cosine: give the student the "
                        f"hidden size {others.hidden_size}")
    if stage != PREDICTION:
        students.learned_layers(own, others)  # refuses too many
        heads = others.num_attention_heads
        if learned.attention_loss and own.num_attention_heads != heads:
            raise UserError(f"--student has {own.num_attention_heads} attention heads and "
                            f"--teacher {heads}: give the student {heads}, or set "
                            "--attention_loss=false")
    if student.checkpoint or not values.do_train:
        return student
    checkpoint = students.initial_values(own, teacher, with_head=stage == PREDICTION)
    if not checkpoint:
        log.warn(f"--student={values.student} has another hidden size than the teacher "
                 f"({others.hidden_size}): it starts from random values")
    return student._replace(checkpoint=checkpoint)


def _encoding(values: flags.FlagValues, teacher: Teacher, student: Student,
              default_length: int) -> Encoding:
    """The teacher's encoding, with --max_seq_length or else `default_length` tokens."""
    limit = min(model.config.max_position_embeddings for model in (teacher, student))
    length = values.max_seq_length
    if length is None:
        length = min(limit, default_length)
    if not 3 <= length <= limit:
        raise UserError(f"--max_seq_length={length}: must be between 3 and {limit}, the number of "
                        "positions that both models have")
    return teacher.encoding._replace(max_seq_length=length, long_texts=teacher.encoding.long_texts.check(length))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

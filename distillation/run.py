"""Teaches a small BERT what a big one knows, on every GPU that is visible.

TinyBERT's two stages for a task (Jiao et al., https://arxiv.org/abs/1909.10351): first the
teacher's attention, states and embeddings, then its outputs. Before them, on any text, the
general distillation of a pretrained model.
"""

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from absl import flags

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from distillation import general, model, student, teacher
from distillation.student import LayerMap, Student
from distillation.teacher import Teacher
from encoder.encoding import Encoding
from engine import command, log, run_flags
from engine.checkpoints import Checkpoint
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.model import Forward
from modeling import BertConfig
from tasks import evaluation, report, task_flags, training, user_files
from tasks.data import TextSet
from tasks.table import TASKS, Task
from tasks.training import Data, Job, Settings

USAGE = """Teaches a small BERT what a fine-tuned big one knows, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m distillation.run --stage=intermediate --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=4,312,12,1200 --do_train --output_dir=stage1
  python -m distillation.run --stage=prediction --task_name=sst-2 --data_dir=glue/SST-2 \\
    --teacher=teacher --student=stage1 --do_train --do_eval --eval_each_epoch --output_dir=student

The last directory is like one of run_classifier.py: it predicts, evaluates and exports from it,
and so does tasks.predict. --train_file= takes an augmented training file. What --student= starts
from may have learned from a pretrained model before, on the examples of pretraining:

  python -m distillation.run --stage=general --input_file='books.tfrecord*' --teacher=$BERT \\
    --student=4,312,12,1200 --do_train --output_dir=general"""

GENERAL, INTERMEDIATE, PREDICTION = "general", "intermediate", "prediction"

# Of the paper (section 4.2): epochs of the first stage, for the tasks where they are not 20.
_EPOCHS = {"cola": 50, "mnli": 10, "qnli": 10, "qqp": 10, "xnli": 10}
_LONGEST_TEXT, _LONGEST_PAIR = 64, 128  # in tokens
_LEARNING_RATES = {GENERAL: 5e-5, INTERMEDIATE: 5e-5, PREDICTION: 3e-5}


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_enum("stage", None, [GENERAL, INTERMEDIATE, PREDICTION], "What is "
                      "learned: the teacher's embeddings, states and attention, without a task or "
                      "with one; or its outputs.",
                      flag_values=values)
    flags.DEFINE_string("teacher", None, "Directory of the trained classifier, or its export; of a "
                        "pretrained model, for --stage=general.", flag_values=values)
    flags.DEFINE_string("input_file", None, "For --stage=general: TFRecord files of pretraining, "
                        "comma-separated: names, patterns and directories.", flag_values=values)
    flags.DEFINE_string("student", None, "Where the student starts: the folder of a model, such as "
                        "the first stage's --output_dir; or a shape: layers,hidden,heads,"
                        "intermediate.", flag_values=values)
    flags.DEFINE_enum("first_values", "teacher", ["teacher", "random"], "Of a student that is a "
                      "shape: the teacher's, as far as the shapes are the same, or random ones.",
                      flag_values=values)
    flags.DEFINE_string("layer_map", None, "The teacher's layer, from 1, that each layer of the "
                        "student learns from, such as 3,6,9,12; uniform where left out.",
                        flag_values=values)
    flags.DEFINE_bool("attention_loss", True, "Learn the scores of the attention, too, for which "
                      "both models have as many heads.", flag_values=values)
    flags.DEFINE_float("temperature", 1.0, "Of the outputs in the loss of --stage=prediction.",
                       flag_values=values)
    flags.DEFINE_float("label_weight", 0.0, "Share of the labels' own loss in that of "
                       "--stage=prediction.", flag_values=values)
    task_flags.define(values)
    flags.DEFINE_string("output_dir", None, "Where the student and its results are written.",
                        flag_values=values)
    flags.DEFINE_integer("max_seq_length", None, "Longest input in tokens; the paper's where left "
                         "out: 64, and 128 for pairs and --stage=general; for files of your own, "
                         "the teacher's.", flag_values=values)
    flags.DEFINE_float("num_train_epochs", None, "Passes over the training set; the paper's where "
                       "left out: 20, 10 for the large tasks and 50 for cola; 3 for the "
                       "other stages.", flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train the student.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate it on the dev set; after --stage=prediction.",
                      flag_values=values)
    run_flags.define_training_flags(values)
    run_flags.define_evaluation_flags(values)
    run_flags.define_device_flags(values)
    values["learning_rate"].help = "Peak learning rate; 5e-5, or 3e-5 for --stage=prediction."
    values.set_default("learning_rate", None)
    return values


class Lesson(NamedTuple):
    """Who learns what from whom."""
    stage: str
    teacher: Teacher
    layers: LayerMap
    attention: bool
    temperature: float
    label_weight: float

    def facts(self) -> Dict[str, Any]:
        """What all runs in one output directory must have in common, beside the job's."""
        own = ({"--temperature": self.temperature, "--label_weight": self.label_weight}
               if self.stage == PREDICTION else
               {"--layer_map": self.layers, "--attention_loss": self.attention})
        return {"--stage": self.stage, "teacher": self.teacher.digest, **own}

    def states_forward(self, config: BertConfig) -> Forward:
        return model.intermediate(config, self.teacher, self.layers, attention=self.attention)

    def forward(self, job: Job) -> Forward:
        if self.stage == INTERMEDIATE:
            return self.states_forward(job.config)
        return model.prediction(job.forward, job.task.kind, temperature=self.temperature,
                                 label_weight=self.label_weight)

    def source(self, job: Job, texts: TextSet) -> Source:
        if self.stage == INTERMEDIATE:
            return texts.source(with_labels=False)
        return teacher.with_outputs(
            self.teacher, texts, job.devices, store_dir=job.settings.store_dir,
            per_replica_batch_size=job.settings.batch_sizes.predict)


def main(values: flags.FlagValues) -> None:
    """Trains and evaluates the student, as the flags ask."""
    _check_what_to_do(values)
    if values.stage == GENERAL:
        _learn_in_general(values)
        return
    job, lesson = _job_and_lesson(values)
    data = training.load_data(job, do_train=values.do_train, do_eval=values.do_eval,
                                do_predict=False)
    if values.do_train:
        _train(job, lesson, data)
    result = evaluation.score(job, data) if values.do_eval else None
    report.write(job, result)


def _train(job: Job, lesson: Lesson, data: Data) -> None:
    with evaluation.evaluator(job, data.dev) as evaluate:
        training.train(job, data.train, evaluate, lesson.forward(job),
                         source=lambda: lesson.source(job, data.train), facts=lesson.facts())


def _check_what_to_do(values: flags.FlagValues) -> None:
    run_flags.required(values, "stage")
    if not (values.do_train or values.do_eval):
        raise UserError("nothing to do: set --do_train, --do_eval or both; --help explains all "
                        "flags")
    if values.stage != PREDICTION:
        for name in ("do_eval", "eval_every_steps", "eval_each_epoch"):
            if values[name].value:
                raise UserError(f"--{name} needs a classifier, which --stage={values.stage} does "
                                "not make yet: evaluate after --stage=prediction")
    if values.test_file:
        raise UserError("--test_file: nothing is predicted here; give it to run_classifier.py or "
                        "tasks.predict, with the student's directory")
    if values.input_file and values.stage != GENERAL:
        raise UserError("--input_file is for --stage=general; a task's texts are in --data_dir")
    of_outputs, of_states = ("temperature", "label_weight"), ("attention_loss",)
    for name in of_states if values.stage == PREDICTION else of_outputs:
        if values[name].present:
            raise UserError(f"--{name} has no part in the loss of --stage={values.stage}")


def _learn_in_general(values: flags.FlagValues) -> None:
    for name in ("task_name", "processor", *user_files.Options._fields):
        if values[name].present:
            raise UserError(f"--{name} is of a task, and --stage=general has none: its texts are "
                            "in --input_file")
    directory = run_flags.required(values, "teacher")
    taught = teacher.load_encoder(directory, values.max_seq_length or _LONGEST_PAIR)
    learner, lesson = _learner_and_lesson(values, taught)
    encoding = _encoding(values, taught, learner, _LONGEST_PAIR)
    patterns = run_flags.required(values, "input_file")
    devices, settings = _devices_and_settings(values, learner, lesson)
    texts = general.open_texts(patterns, encoding, taught.config.vocab_size, settings.store_dir)
    general.train(lesson.states_forward(learner.config), texts, learner.config, encoding, devices,
                  settings, lesson.facts())


def _job_and_lesson(values: flags.FlagValues) -> Tuple[Job, Lesson]:
    """Checks what the flags say; the output directory is made last, when all is well."""
    taught = teacher.load(run_flags.required(values, "teacher"))
    task_name, task = _task(values, taught)
    learner, lesson = _learner_and_lesson(values, taught)
    longest = taught.encoding.max_seq_length
    if task_name in TASKS:
        longest = _LONGEST_PAIR if taught.takes_pairs else _LONGEST_TEXT
    encoding = _encoding(values, taught, learner, longest)
    devices, settings = _devices_and_settings(
        values, learner, lesson, _EPOCHS.get(task_name, 20), task_flags.data_dir(values),
        [metric.name for metric in task.metrics])
    return Job(task_name, task, learner.config, encoding, devices, settings), lesson


def _learner_and_lesson(values: flags.FlagValues, taught: Teacher) -> Tuple[Student, Lesson]:
    learner = student.find(run_flags.required(values, "student"), taught)
    if learner.checkpoint and values["first_values"].present:
        raise UserError(f"--first_values is for a shape; --student={values.student} has values")
    layers = ()
    takes_values = (learner.checkpoint is None and values.first_values == "teacher"
                    and learner.config.hidden_size == taught.config.hidden_size)
    if values.stage != PREDICTION or takes_values:
        layers = student.layer_map(values.layer_map, learner.config, taught.config)
    elif values.layer_map:
        raise UserError(f"--layer_map has no part in --stage={PREDICTION} of a student that takes "
                        f"none of the teacher's values, as --student={values.student} does not")
    if values.stage != PREDICTION and values.attention_loss:
        _check_heads(learner, taught)
    return learner, Lesson(
        values.stage, taught, layers, values.attention_loss,
        run_flags.positive(values, "temperature"),
        run_flags.in_range(values, "label_weight", 0, 1))


def _devices_and_settings(values: flags.FlagValues, learner: Student, lesson: Lesson,
                          epochs_of_first_stage: int = 0, data_dir: str = "",
                          metrics: Sequence[str] = ()) -> Tuple[Devices, Settings]:
    if values.num_train_epochs is None:
        values.num_train_epochs = epochs_of_first_stage if values.stage == INTERMEDIATE else 3
    if values.learning_rate is None:
        values.learning_rate = _LEARNING_RATES[values.stage]
    devices = run_flags.find_devices(values, training=values.do_train)
    settings = Settings.of_flags(values, metrics, data_dir)
    return devices, settings._replace(init_checkpoint=_first_values(values, learner, lesson))


def _task(values: flags.FlagValues, taught: Teacher) -> Tuple[str, Task]:
    wanted = {"train": values.do_train, "dev": values.do_eval}
    sets = [name for name in wanted if wanted[name]]
    task_name, task = task_flags.find(values, sets, (taught.kind, taught.takes_pairs))
    kind = task.kind
    if (kind.name, kind.labels) != (taught.kind.name, taught.kind.labels):
        raise UserError(f"--teacher={values.teacher} knows {_labels(taught.kind)}, and the task "
                        f"has {_labels(kind)}; they must be of the same task")
    return task_name, task


def _labels(kind) -> str:
    return f"the labels {', '.join(kind.labels[:20])}" if kind.labels else "numbers"


def _check_heads(learner: Student, taught: Teacher) -> None:
    own, others = (config.num_attention_heads for config in (learner.config, taught.config))
    if own != others:
        raise UserError(f"--student has {own} attention heads and --teacher {others}: give the "
                        f"student {others}, or set --attention_loss=false")


def _encoding(values: flags.FlagValues, taught: Teacher, learner: Student,
              longest: int) -> Encoding:
    """The teacher's, up to the length that is asked for, or else `longest`."""
    limit = min(config.max_position_embeddings for config in (taught.config, learner.config))
    length = values.max_seq_length
    if length is None:
        length = min(limit, longest)
    if not 3 <= length <= limit:
        raise UserError(f"--max_seq_length={length}: must be between 3 and {limit}, the positions "
                        "that both models have")
    return taught.encoding._replace(max_seq_length=length)


def _first_values(values: flags.FlagValues, learner: Student,
                  lesson: Lesson) -> Optional[Checkpoint]:
    if learner.checkpoint or values.first_values == "random":
        return learner.checkpoint
    found = student.first_values(learner.config, lesson.teacher, lesson.layers,
                                 with_head=lesson.stage == PREDICTION)
    if not found:
        log.warn(f"--student={values.student} has another hidden size than the teacher "
                 f"({lesson.teacher.config.hidden_size}): it starts from random values")
    return found


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Fine-tuning on a task: its data, its head and its metrics, put through the engine."""

import glob
import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from absl import flags

import tokenization
from encoder import classifier
from encoder.config import load_config_of_flags
from encoder.encoding import Encoding, load_encoding
from engine import checkpoints, files, log, run_flags
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.model import Forward
from engine.run_flags import BatchSizes
from engine.training import loop, run_record
from engine.training.evaluations import Evaluate, EvaluationSettings, Evaluations, forget
from modeling import BertConfig
from tasks import model_folder
from tasks.data import TextSet, load_texts
from tasks.table import Split, Task


# What scoring writes into the output directory.
RESULT_FILES = ("eval_results.txt", "eval_results.json", "test_results*.tsv", "predict*.txt",
                "report.html")


def define_flags(values: flags.FlagValues) -> None:
    """The model to start from, where the trained one goes, and for how long it is trained."""
    run_flags.define_model_flags(values, "the model to start from")
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.",
                        flag_values=values)
    flags.DEFINE_integer("max_seq_length", 128, "Longest input in tokens; longer texts are cut.",
                         flag_values=values)
    flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.",
                       flag_values=values)


def load_model(values: flags.FlagValues) -> Tuple[BertConfig, Encoding]:
    """The model's config and vocabulary, held against each other and against the flags.

    Raises:
        UserError: they do not belong together.
    """
    config = load_config_of_flags(values)
    encoding = load_encoding(
        run_flags.required(values, "vocab_file"), do_lower_case=values.do_lower_case,
        max_seq_length=values.max_seq_length, vocab_size=config.vocab_size)
    try:
        tokenization.validate_case_matches_checkpoint(
            values.do_lower_case, values.init_checkpoint)
    except ValueError as error:
        raise UserError(str(error)) from error
    return config, encoding


class Settings(NamedTuple):
    """What the command asks for, beyond the task and the model."""
    data_dir: str
    init_checkpoint: Optional[checkpoints.Checkpoint]
    batch_sizes: BatchSizes
    gradient_accumulation_steps: int
    num_train_epochs: float
    learning_rate: float
    optimizer: str
    layer_lr_decay: float
    fp16: bool
    recompute_layers: bool
    warmup_proportion: float
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    seed: int
    dynamic_padding: bool
    xla: bool
    allow_batch_change: bool
    evaluation: Optional[EvaluationSettings]  # during the training; None: only after it
    output_dir: str
    store_dir: str

    @classmethod
    def of_flags(cls, values: flags.FlagValues, metrics: Sequence[str],
                 data_dir: str = "") -> "Settings":
        """What the flags say; makes the directories last, when all is well.

        Args:
            metrics: the names of the task's, of which more is better.

        Raises:
            UserError: a flag is missing or has a value that it cannot have.
        """
        return cls(
            data_dir=data_dir,
            init_checkpoint=_init_checkpoint(values),
            batch_sizes=run_flags.batch_sizes(values),
            gradient_accumulation_steps=run_flags.positive(values, "gradient_accumulation_steps"),
            num_train_epochs=run_flags.positive(values, "num_train_epochs"),
            learning_rate=run_flags.positive(values, "learning_rate"),
            optimizer=values.optimizer,
            layer_lr_decay=run_flags.in_range(values, "layer_lr_decay", 0.01, 1),
            fp16=values.fp16,
            recompute_layers=values.recompute_layers,
            xla=values.xla,
            warmup_proportion=run_flags.in_range(values, "warmup_proportion", 0, 1),
            save_checkpoints_steps=run_flags.positive(values, "save_checkpoints_steps"),
            keep_checkpoint_max=run_flags.positive(values, "keep_checkpoint_max"),
            seed=run_flags.in_range(values, "seed", 0, 2**31 - 1),
            dynamic_padding=values.dynamic_padding,
            allow_batch_change=values.allow_batch_change,
            evaluation=run_flags.evaluation_settings(values, metrics),
            output_dir=files.make_directory(
                run_flags.required(values, "output_dir"), "--output_dir"),
            store_dir=files.make_directory(
                values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir"))

    def global_batch_size(self, num_replicas: int) -> int:
        """Examples of a training step, over all replicas."""
        return self.batch_sizes.train * self.gradient_accumulation_steps * num_replicas

    def training(self, num_train_steps: int) -> loop.TrainingSettings:
        """What the engine trains with, for so many steps."""
        return loop.TrainingSettings(
            output_dir=self.output_dir,
            num_train_steps=num_train_steps,
            warmup_steps=int(num_train_steps * self.warmup_proportion),
            learning_rate=self.learning_rate,
            optimizer=self.optimizer,
            layer_lr_decay=self.layer_lr_decay,
            per_replica_batch_size=self.batch_sizes.train,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            seed=self.seed,
            save_checkpoints_steps=self.save_checkpoints_steps,
            keep_checkpoint_max=self.keep_checkpoint_max,
            xla=self.xla,
            fp16=self.fp16,
            recompute_layers=self.recompute_layers)

    def changeable(self, num_replicas: int) -> Dict[str, Any]:
        """What a run that goes on may have otherwise than before; it is said."""
        accumulates = self.gradient_accumulation_steps > 1
        return {run_record.GLOBAL_BATCH_SIZE: self.global_batch_size(num_replicas),
                "number of replicas": num_replicas,
                # None where it is the default, as in the records of runs before there was a choice.
                "--gradient_accumulation_steps":
                    self.gradient_accumulation_steps if accumulates else None,
                "--optimizer": self.optimizer if self.optimizer != "adamw" else None,
                "--layer_lr_decay": self.layer_lr_decay if self.layer_lr_decay != 1 else None,
                "--xla": self.xla or None,
                "--fp16": self.fp16 or None,
                "--num_train_epochs": self.num_train_epochs,
                "--learning_rate": self.learning_rate,
                "--warmup_proportion": self.warmup_proportion,
                "--seed": self.seed,
                **_evaluation_facts(self.evaluation),
                "--init_checkpoint": self.init_checkpoint and self.init_checkpoint.path}


def _init_checkpoint(values: flags.FlagValues) -> Optional[checkpoints.Checkpoint]:
    given = "init_checkpoint" in values and values.init_checkpoint  # some commands start otherwise
    return checkpoints.open_checkpoint(given) if given else None


class Job(NamedTuple):
    """A task, a model, the devices and the settings: all that a run needs but its data."""
    task_name: str
    task: Task
    config: BertConfig
    encoding: Encoding
    devices: Devices
    settings: Settings

    @property
    def forward(self) -> Forward:
        return classifier.forward_of(self.config, self.task.kind.num_outputs)

    @property
    def global_batch_size(self) -> int:
        """Examples of a training step, over all replicas."""
        return self.settings.global_batch_size(self.devices.num_replicas)

    def facts(self) -> Dict[str, Any]:
        """What all runs in one output directory must have in common."""
        task = self.task
        return {"task": self.task_name,
                "label set": ([*task.labels, f"separated by {task.label_separator}"]
                              if task.label_separator else task.labels),
                "model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length}


class Data(NamedTuple):
    """The sets that a run needs, tokenized. Made by `load_data`."""
    train: Optional[TextSet]
    # By the suffix of their results: "" is the set itself, "_mm" the mismatched one.
    dev: Dict[str, TextSet]
    test: Dict[str, TextSet]


def load_data(job: Job, *, do_train: bool, do_eval: bool, do_predict: bool) -> Data:
    """Loads all sets before the first is used: a bad row must not surface after the training.

    Raises:
        UserError: a file is not as the task's row says.
    """
    task, train_texts = job.task, None
    if do_train:
        train_texts = _load(job, task.train)
        _num_train_steps(job, train_texts)  # too few examples are said before the rest is read
    return Data(
        train=train_texts,
        dev=_load_with_mismatched(job, task.dev, task.mismatched_dev) if do_eval else {},
        test=_load_with_mismatched(job, task.test, task.mismatched_test) if do_predict else {})


def _load(job: Job, split: Split) -> TextSet:
    return load_texts(job.task, split, job.settings.data_dir, job.encoding,
                      job.settings.store_dir, dynamic_padding=job.settings.dynamic_padding)


def _load_with_mismatched(job: Job, split: Split,
                          mismatched: Optional[Split]) -> Dict[str, TextSet]:
    sets = {"": _load(job, split)}
    if mismatched and os.path.exists(os.path.join(job.settings.data_dir, mismatched.file)):
        sets["_mm"] = _load(job, mismatched)
    return sets


def train(job: Job, texts: TextSet, evaluate: Evaluate,
          forward: Optional[Forward] = None, *,
          source: Optional[Callable[[], Source]] = None,
          facts: Optional[Mapping[str, Any]] = None) -> None:
    """Trains for the epochs asked for; goes on where an earlier run stopped.

    Args:
        evaluate: a checkpoint, on the dev set; used where the settings ask for evaluation
            during the training.
        forward: the model with the loss to train it with, where that is not the job's.
        source: makes what that loss reads, where it is more than the texts; called only
            where there is something to train.
        facts: what the run is, beyond the job and its data.

    Raises:
        UserError: the output directory holds another run, or the checkpoint another model.
    """
    settings = job.settings
    schedule = settings.training(_num_train_steps(job, texts))
    record = run_record.Record(
        {**job.facts(), "training data": texts.content_hash, **(facts or {})},
        settings.changeable(job.devices.num_replicas))
    evaluations = settings.evaluation and Evaluations(
        settings.output_dir, settings.evaluation, evaluate)
    if not run_record.check_training(
            settings.output_dir, record, num_train_steps=schedule.num_train_steps,
            allow_batch_change=settings.allow_batch_change):
        _catch_up(evaluations, settings.output_dir)
        return
    if evaluations and evaluations.is_patience_used_up():
        return
    if not evaluations:
        forget(settings.output_dir)
    announce(settings, job.devices, len(texts), schedule)
    _remove_results(settings.output_dir)
    model_folder.save(settings.output_dir, texts, job.config, job.encoding)
    with run_record.kept(settings.output_dir, record):
        loop.train(forward or job.forward,
                       source() if source else texts.source(with_labels=True),
                       job.devices, schedule, settings.init_checkpoint, evaluations)


def _catch_up(evaluations: Optional[Evaluations], output_dir: str) -> None:
    """Makes up for the last evaluation of a run that was killed before it."""
    newest = checkpoints.latest(output_dir)
    if evaluations and evaluations.lacks(newest.global_step):
        evaluations.run(newest)


def _num_train_steps(job: Job, texts: TextSet) -> int:
    return loop.count_steps(
        len(texts), job.settings.num_train_epochs, job.global_batch_size)


def _remove_results(output_dir: str) -> None:
    """Removes scores and predictions of an earlier model, which the training makes stale."""
    for pattern in RESULT_FILES:
        for path in glob.glob(os.path.join(glob.escape(output_dir), pattern)):
            log.info(f"Removing {path}: it is of an earlier model")
            os.remove(path)


def _evaluation_facts(evaluation: Optional[EvaluationSettings]) -> Dict[str, Any]:
    facts = evaluation or EvaluationSettings(None, None, None, None)
    each_epoch = evaluation is not None and evaluation.every_steps is None
    return {"--eval_every_steps": "each epoch" if each_epoch else facts.every_steps,
            "--metric_for_best": facts.metric,
            "--early_stopping_patience": facts.patience}


def announce(settings: Settings, devices: Devices, num_examples: int,
             schedule: loop.TrainingSettings) -> None:
    """Says what is about to be trained, and how much of it."""
    if not settings.init_checkpoint and not checkpoints.latest(settings.output_dir):
        log.warn("no --init_checkpoint: the whole model starts from random values")
    times = settings.gradient_accumulation_steps
    log.info(f"Training on {devices.describe()}: {devices.num_replicas} replicas x "
             f"{settings.batch_sizes.train}{f' x {times} accumulated' if times > 1 else ''} = "
             f"{settings.global_batch_size(devices.num_replicas)} examples per "
             f"step; {num_examples:,} examples x {settings.num_train_epochs:g} epochs = "
             f"{schedule.num_train_steps:,} steps, {schedule.warmup_steps:,} of them warm-up")

"""Fine-tunes a model on a task: loads the task's data and starts the training run."""

import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

from absl import flags

from encoder import classifier, model_files, model_flags
from encoder.encoding import Encoding
from engine import checkpoints
from engine.data.batches import Source
from engine.devices import Devices
from engine.model import Forward
from engine.training import run, throughput
from engine.training.evaluations import Evaluate
from engine.training.settings import EpochSchedule, RunSettings, define_run_flags
from modeling import BertConfig
from tasks import class_weights, model_folder
from tasks.data import TextSet, TrainingSet, load_texts
from tasks.table import Split, Task

# The files that evaluation and prediction write into the output directory.
RESULT_FILES = ("eval_results.txt", "eval_results.json", "test_results*.tsv", "predict*.txt",
                "report.html")


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of the model to start from and of the training."""
    model_flags.define(values, "the model to start from")
    model_flags.define_max_seq_length(values)
    define_run_flags(values, EpochSchedule)


class Job(NamedTuple):
    """A task, a model, the devices and the settings: all that a run needs except its data."""
    task_name: str
    task: Task
    config: BertConfig
    encoding: Encoding
    devices: Devices
    settings: RunSettings
    data_dir: str = ""  # the directory that the task's files are relative to

    @property
    def forward(self) -> Forward:
        """The classifier and its loss."""
        return classifier.forward_of(self.config, self.task.kind.num_outputs)

    def facts(self) -> Dict[str, Any]:
        """What identifies the run: a resumed run must have the same facts."""
        return {"task": self.task_name,
                model_folder.LABEL_SET: model_folder.label_set(self.task.kind),
                "model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length,
                "--long_texts": self.encoding.long_texts.facts()}


class Data(NamedTuple):
    """The sets that a run needs, tokenized. Made by `load_data`."""
    train: Optional[TextSet]
    # Suffix of the results' names → set: "" for the set itself, "_mm" for MNLI's mismatched one.
    dev: Dict[str, TextSet]
    test: Dict[str, TextSet]


def check_checkpoints(job: Job) -> None:
    """Raises a UserError if a model to train on has a classification layer for other labels."""
    resumed = checkpoints.latest(job.settings.output_dir)
    checkpoint, flag = ((resumed, "--output_dir") if resumed else
                        (job.settings.init_checkpoint, "--init_checkpoint"))
    if checkpoint:
        model_files.check_outputs(checkpoint, job.task.kind.num_outputs, flag)


def load_data(job: Job, *, do_train: bool, do_eval: bool, do_predict: bool) -> Data:
    """Loads all sets before the training, so that it does not end in an error about a bad row.

    Raises:
        UserError: a file does not have the task's columns and labels.
    """
    task, train_texts = job.task, None
    if do_train:
        train_texts = _load(job, task.train)
        # Too few examples are reported before the other sets are read.
        job.settings.schedule(len(train_texts), job.devices.num_replicas)
    return Data(
        train=train_texts,
        dev=_load_with_mismatched(job, task.dev, task.mismatched_dev) if do_eval else {},
        test=_load_with_mismatched(job, task.test, task.mismatched_test) if do_predict else {})


def _load(job: Job, split: Split) -> TextSet:
    return load_texts(job.task, split, job.data_dir, job.encoding,
                      job.settings.store_dir, dynamic_padding=job.settings.training.dynamic_padding)


def _load_with_mismatched(job: Job, split: Split,
                          mismatched: Optional[Split]) -> Dict[str, TextSet]:
    sets = {"": _load(job, split)}
    if mismatched and os.path.exists(os.path.join(job.data_dir, mismatched.file)):
        sets["_mm"] = _load(job, mismatched)
    return sets


def train(job: Job, texts: TrainingSet, evaluate: Evaluate,
          forward: Optional[Forward] = None, *,
          make_source: Optional[Callable[[], Source]] = None,
          facts: Optional[Mapping[str, Any]] = None,
          operations: Optional[throughput.Operations] = None) -> None:
    """Trains for the epochs of the job's settings; resumes an earlier run.

    Args:
        evaluate: evaluates a checkpoint on the dev set; called only if the settings ask for
            evaluation during the training.
        forward: the model and its loss, by default the job's.
        make_source: returns the features that `forward` needs, by default the texts and their
            labels; called only if something is left to train.
        facts: what identifies the run, in addition to the job and its data.
        operations: of a training on some examples, by default of the job's model.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
    """
    output_dir, init_checkpoint = job.settings.output_dir, job.settings.init_checkpoint
    if init_checkpoint and not checkpoints.latest(output_dir):
        model_files.warn_of_other_labels(init_checkpoint, "--init_checkpoint", {
            "kind": job.task.kind.name, "labels": list(job.task.kind.labels)})
    run.train(run.Run(
        facts={**job.facts(), "training data": texts.content_hash, **(facts or {})},
        settings=job.settings,
        devices=job.devices,
        num_examples=len(texts),
        forward=forward or job.forward,
        make_source=make_source or (lambda: _source(job, texts)),
        operations=operations or throughput.classifier(job.config),
        evaluate=evaluate,
        save_description=lambda: model_folder.save(output_dir, texts, job.config, job.encoding,
                                                   job.task.trained_columns),
        result_files=RESULT_FILES))


def _source(job: Job, texts: TrainingSet) -> Source:
    """The texts and their labels, with their weights if the settings ask for some."""
    source, own = texts.source(with_labels=True), job.settings.own
    if not (own and own.class_weights):
        return source
    kind, records = texts.kind, texts.records
    weights = class_weights.of_classes(
        own.class_weights, kind, kind.targets(records, slice(None)))
    return class_weights.weighted(source, lambda indices: class_weights.of_labels(
        weights, kind.targets(records, indices)))

"""A pretraining run: examples, a model and the devices, put through the engine."""

import os
from typing import Any, Dict, NamedTuple, Optional

from engine import checkpoints, log
from engine.devices import Devices
from engine.training import loop, run_record
from engine.training.evaluations import Evaluate, EvaluationSettings, Evaluations, forget
from modeling import BertConfig
from pretraining import model
from pretraining.data import RecordSet

RESULTS = "eval_results.txt"


class Job(NamedTuple):
    """All that a run needs but its examples."""
    config: BertConfig
    devices: Devices
    training: loop.TrainingSettings
    init_checkpoint: Optional[checkpoints.Checkpoint]
    allow_batch_change: bool
    evaluation: Optional[EvaluationSettings]  # during the training; None: only after it
    per_replica_eval_batch_size: int
    max_eval_steps: Optional[int]

    @property
    def output_dir(self) -> str:
        return self.training.output_dir

    @property
    def global_batch_size(self) -> int:
        """Examples of a training step, over all replicas."""
        settings = self.training
        return (settings.per_replica_batch_size * settings.gradient_accumulation_steps
                * self.devices.num_replicas)

    def facts(self) -> Dict[str, Any]:
        """What all runs in one output directory must have in common."""
        return {"task": "pretraining", "model config": self.config.to_dict()}


def train(job: Job, records: RecordSet, evaluate: Optional[Evaluate]) -> None:
    """Trains for the steps asked for; goes on where an earlier run stopped.

    Args:
        evaluate: a checkpoint, on held-out examples; needed where the job has it done during
            the training.

    Raises:
        UserError: the output directory holds another run, or the checkpoint another model.
    """
    settings = job.training
    record = run_record.Record(
        {**job.facts(), "--max_seq_length": records.max_seq_length,
         "training data": records.content_hash}, _changeable(job))
    forward = model.forward_of(job.config, next_sentences=records.has_next_sentences)
    evaluations = job.evaluation and Evaluations(
        job.output_dir, job.evaluation, evaluate)
    if not run_record.check_training(
            job.output_dir, record, num_train_steps=settings.num_train_steps,
            allow_batch_change=job.allow_batch_change):
        newest = checkpoints.latest(job.output_dir)
        if evaluations and evaluations.lacks(newest.global_step):
            evaluations.run(newest)  # of a run that was killed before it
        return
    if evaluations and evaluations.is_patience_used_up():
        return
    if not evaluations:
        forget(job.output_dir)
    _announce(job, records)
    _remove_results(job.output_dir)
    with run_record.kept(job.output_dir, record):
        loop.train(forward, records.source(settings.seed), job.devices, settings,
                       job.init_checkpoint, evaluations)


def _remove_results(output_dir: str) -> None:
    path = os.path.join(output_dir, RESULTS)
    if os.path.exists(path):
        log.info(f"Removing {path}: it is of an earlier model")
        os.remove(path)


def _changeable(job: Job) -> Dict[str, Any]:
    """What a run that goes on may have otherwise than before; it is said."""
    settings = job.training
    return {run_record.GLOBAL_BATCH_SIZE: job.global_batch_size,
            "number of replicas": job.devices.num_replicas,
            "--gradient_accumulation_steps": settings.gradient_accumulation_steps,
            "--optimizer": settings.optimizer,
            "--layer_lr_decay": settings.layer_lr_decay,
            "--fp16": settings.fp16,
            "--xla": settings.xla,
            "--num_train_steps": settings.num_train_steps,
            "--num_warmup_steps": settings.warmup_steps,
            "--learning_rate": settings.learning_rate,
            "--seed": settings.seed,
            "evaluation": job.evaluation,
            "--init_checkpoint": job.init_checkpoint and job.init_checkpoint.path}


def _announce(job: Job, records: RecordSet) -> None:
    settings = job.training
    if not job.init_checkpoint and not checkpoints.latest(job.output_dir):
        log.warn("no --init_checkpoint: the whole model starts from random values")
    if not records.has_next_sentences:
        log.info("All examples have the same next_sentence_label: the model learns masked words "
                 "alone")
    times = (f" x {settings.gradient_accumulation_steps} accumulated"
             if settings.gradient_accumulation_steps > 1 else "")
    log.info(f"Training on {job.devices.describe()}: {job.devices.num_replicas} replicas x "
             f"{settings.per_replica_batch_size}{times} = {job.global_batch_size} examples per "
             f"step; {settings.num_train_steps:,} steps, {settings.warmup_steps:,} of them "
             f"warm-up, are {settings.num_train_steps * job.global_batch_size / len(records):.3g} "
             f"passes over {len(records):,} examples")

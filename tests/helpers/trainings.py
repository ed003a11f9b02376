"""Small trainings whose variables, losses and norms are compared."""

import contextlib
from typing import Iterator

import pytest

from conftest import TinyModel, checkpoint_values, cpu_devices, write_cola
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.model import Mode, Training
from engine.training import checkpoint_hook, loop
from engine.training.settings import (
    EvaluationSettings, RunSettings, StepSchedule, TrainingSettings)
from engine.training.step_hook import TrainingProgress
from tasks.data import load_texts
from tasks.table import TASKS

import tensorflow.compat.v1 as tf

STEPS = 20


def training_source(model: TinyModel, directory, *, examples: int = 200) -> batches.Source:
    task = TASKS["cola"].within(write_cola(directory, train=examples))
    texts = load_texts(task.train, task.kind, model.encoding(16), str(directory / "store"))
    return texts.source(with_labels=True)


def settings(output_dir, train_batch_size: int, *, num_train_steps=STEPS, warmup_steps=4,
             **changes) -> RunSettings:
    """A training of toy size; `changes` are fields of TrainingSettings."""
    return RunSettings(
        TrainingSettings(train_batch_size=train_batch_size, **{"seed": 7, **changes}),
        EvaluationSettings(), StepSchedule(num_train_steps, warmup_steps), None, str(output_dir), "")


def replica_of(mode: Mode) -> tf.Tensor:
    """The number of the replica that a model in training computes for: its operations are copied."""
    return tf.cast(mode.dropout_seed[0] % 2**20, tf.int32)


def run_loop(forward, source, num_replicas, run_settings, init_checkpoint, config=None, hooks=(), **more):
    loop.take_steps(loop.Run({}, run_settings._replace(init_checkpoint=init_checkpoint),
                        cpu_devices(num_replicas),
                        Training(len(source.lengths), "", forward, lambda: source, **more), config=config), more_hooks=hooks)


def train(model: TinyModel, source, num_replicas, run_settings, *, config_changes=None,
          forward=None):
    config = model.config(**(config_changes or {}))
    run_loop(forward or classifier.forward_of(config, 2), source, num_replicas, run_settings,
             checkpoints.open_checkpoint(model.init_checkpoint))
    return checkpoint_values(run_settings.output_dir)


def recorded(monkeypatch):
    """Collects the loss and the gradient norm of every step."""
    losses, norms, original = [], [], TrainingProgress.add

    def add(self, step):
        losses.append(step.loss)
        norms.append(step.gradient_norm)
        original(self, step)
    monkeypatch.setattr(TrainingProgress, "add", add)
    return losses, norms


class Crash(Exception):
    """The power goes off."""


@contextlib.contextmanager
def crash_after(step: int) -> Iterator[None]:
    """What runs in it is a training that dies right after it has saved at `step`."""
    original = checkpoint_hook.SaveHook._save

    def save_and_die(self, session):
        original(self, session)
        if self.step == step:
            raise Crash()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(checkpoint_hook.SaveHook, "_save", save_and_die)
        yield

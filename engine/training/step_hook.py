"""Hands what each training step computed to those who check, show and write it."""

import math
from typing import Callable, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

import multigpu_optimizer
from engine.data.batches import Source
from engine.data.plan import TrainingPlan

# The graph collection with the mean loss of a step over all replicas, a scalar.
LOSS = "loss"


class Step(NamedTuple):
    """A training step, on all replicas."""
    number: int  # the global step after it
    loss: float  # the mean of its examples
    learning_rate: float  # of its update, that is, the schedule's value at `number - 1`
    gradient_norm: float  # not finite: the step was skipped
    loss_scale: Optional[float]  # None without mixed precision
    num_examples: int
    num_tokens: int
    num_padded_tokens: int  # with padding


def finite_mean(values: Sequence[float]) -> float:
    """The mean of the finite values; NaN if there are none. Skipped steps have other values."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite, dtype=np.float64)) if finite else math.nan


class StepHook(tf.train.SessionRunHook):
    """Calls functions with each step.

    It must come before the hook that saves, so that no checkpoint is on disk without what the
    functions write of the steps before it, and none of a step that they refuse.

    Args:
        listeners: called with each step, in their order.
    """

    def __init__(self, first_step: int, source: Source, plan: TrainingPlan,
                 listeners: Sequence[Callable[[Step], None]]):
        self._step = first_step
        self._source = source
        self._plan = plan
        self._listeners = listeners

    def begin(self) -> None:
        """Finds the values of a step in the graph."""
        self._fetches = {"loss": tf.get_collection(LOSS)[0],
                         "learning_rate": tf.get_collection(multigpu_optimizer.LEARNING_RATE)[0],
                         "gradient_norm": tf.get_collection(multigpu_optimizer.GRADIENT_NORM)[0]}
        for scale in tf.get_collection(multigpu_optimizer.LOSS_SCALE)[:1]:
            self._fetches["loss_scale"] = scale

    def before_run(self, run_context):
        """Asks for the values of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values) -> None:
        """Calls the listeners."""
        indices = self._plan.global_batch(self._step)
        lengths = self._source.lengths[indices]
        self._step += 1
        step = Step(
            number=self._step, num_examples=len(indices), num_tokens=int(lengths.sum()),
            num_padded_tokens=len(indices) * self._source.padded_length(indices),
            **{"loss_scale": None, **run_values.results})
        for listener in self._listeners:
            listener(step)

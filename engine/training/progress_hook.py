"""Shows the progress of a training: step, loss, learning rate, examples/s and the time left."""

import math
import time
from typing import Dict, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

import multigpu_optimizer
from engine import log, progress
from engine.training.throughput import Throughput


# The graph collection with the mean loss of a step over all replicas, a scalar.
LOSS = "loss"


def finite_mean(values: Sequence[float]) -> float:
    """The mean of the finite values (those of skipped steps are not); NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite, dtype=np.float64)) if finite else math.nan


def step_values() -> Dict[str, tf.Tensor]:
    """The tensors for hooks to fetch at each training step.

    loss, learning_rate, gradient_norm, and, with mixed precision, loss_scale.
    """
    scale = tf.get_collection(multigpu_optimizer.LOSS_SCALE)[:1]
    return {
        **({"loss_scale": scale[0]} if scale else {}),
        "loss": tf.get_collection(LOSS)[0],
        "learning_rate": tf.get_collection(multigpu_optimizer.LEARNING_RATE)[0],
        "gradient_norm": tf.get_collection(multigpu_optimizer.GRADIENT_NORM)[0]}


class TrainingProgress(tf.train.SessionRunHook):
    """Shows the step, loss, learning rate, speed over all replicas and time left.

    The loss is the mean since the last time it was shown. Use it as a context manager around the
    training, so that the bar is removed before an error is printed.
    """

    def __init__(self, first_step: int, num_train_steps: int, global_batch_size: int,
                 throughput: Throughput):
        self._step = first_step
        self._num_train_steps = num_train_steps
        self._global_batch_size = global_batch_size
        self._throughput = throughput
        self._operations = 0.0  # since the first step
        self._losses = []
        self._skipped_steps = 0
        self._loss_scale = None
        self._start = None

    def __enter__(self) -> "TrainingProgress":
        self._bar = progress.bar(initial=self._step, total=self._num_train_steps,
                                 bar_format="step {n}/{total} |{bar}| {desc}")
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def begin(self) -> None:
        """Finds the values to show in the graph."""
        self._fetches = step_values()

    def before_run(self, run_context):
        """Asks for the values of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values) -> None:
        """Counts the step; shows the values at the first and last step, and at intervals."""
        if self._start is not None:
            self._operations += self._throughput.operations(self._step)
        self._step += 1
        self._losses.append(run_values.results["loss"])
        self._skipped_steps += not np.isfinite(run_values.results["gradient_norm"])
        self._loss_scale = run_values.results.get("loss_scale")
        self._bar.update()
        if self._start is None or self._step == self._num_train_steps or self._is_time():
            self._show(run_values.results["learning_rate"])

    def end(self, session) -> None:
        """Logs the peak memory, and the skipped steps and the loss scale, if there are any."""
        for gigabytes in self._throughput.peak_memory_gb().values():
            log.info(f"Peak memory: {gigabytes:,.1f} GB")
        if self._skipped_steps:
            log.warn(f"skipped {progress.counted(self._skipped_steps, 'steps')} with gradients "
                     "that were not finite")
        if self._loss_scale:
            log.info(f"The loss scale of the last step was {self._loss_scale:,.0f}")

    def _is_time(self) -> bool:
        interval = progress.LINE_SECONDS if self._bar.disable else progress.BAR_SECONDS
        return time.time() - self._last_shown > interval

    def _show(self, learning_rate: float) -> None:
        state = f"loss {finite_mean(self._losses):.4f}, lr {learning_rate:.2e}{self._speed()}"
        if self._bar.disable or self._step == self._num_train_steps:
            log.info(f"step {self._step}/{self._num_train_steps}: {state}")
        else:
            self._bar.set_description_str(state)
        self._losses.clear()
        self._last_shown = time.time()

    def _speed(self) -> str:
        # The time of the first step includes the set-up, so the rate is counted after it.
        if self._start is None:
            self._start, self._start_step = time.time(), self._step
            return ""
        seconds = max(time.time() - self._start, 1e-9)
        steps_per_second = (self._step - self._start_step) / seconds
        left = progress.clock((self._num_train_steps - self._step) / steps_per_second)
        reached = self._throughput.describe(self._operations / seconds)
        rate = progress.rate(steps_per_second * self._global_batch_size, "examples")
        return f", {rate}{reached}, {left} left"

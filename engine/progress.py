"""How far a run is: plain lines at intervals."""

import time

import numpy as np
import tensorflow.compat.v1 as tf

import multigpu_optimizer
from engine import log

_INTERVAL_SECONDS = 10.0


class TrainingProgress(tf.train.SessionRunHook):
    """Says step, mean loss since the last line, examples/s over all replicas, time left."""

    def __init__(self, first_step: int, num_train_steps: int, global_batch_size: int):
        self._step = first_step
        self._num_train_steps = num_train_steps
        self._global_batch_size = global_batch_size
        self._losses = []
        self._skipped_steps = 0

    def begin(self) -> None:
        self._fetches = {
            # Estimator adds the loss over all replicas last.
            "loss": tf.get_collection(tf.GraphKeys.LOSSES)[-1],
            "gradient_norm": tf.get_collection(multigpu_optimizer.GRADIENT_NORM)[0]}

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values) -> None:
        self._step += 1
        self._losses.append(run_values.results["loss"])
        self._skipped_steps += not np.isfinite(run_values.results["gradient_norm"])
        if len(self._losses) == 1 and not hasattr(self, "_start"):
            self._report_first_step()
        elif (time.time() - self._reported > _INTERVAL_SECONDS
              or self._step == self._num_train_steps):
            self._report()

    def end(self, session) -> None:
        if self._skipped_steps:
            log.warn(f"{self._skipped_steps} steps were skipped: their gradients were not finite")

    def _report_first_step(self) -> None:
        # The first step's time is set-up: it stays out of the rate.
        self._start, self._start_step = time.time(), self._step
        self._line("")

    def _report(self) -> None:
        rate = (self._step - self._start_step) / max(time.time() - self._start, 1e-9)
        left = time.strftime(
            "%H:%M:%S", time.gmtime((self._num_train_steps - self._step) / max(rate, 1e-9)))
        self._line(f", {rate * self._global_batch_size:,.1f} examples/s, {left} left")

    def _line(self, speed: str) -> None:
        log.info(f"step {self._step}/{self._num_train_steps}: "
                 f"loss {np.mean(self._losses):.4f}{speed}")
        self._losses.clear()
        self._reported = time.time()

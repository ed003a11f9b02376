"""Logs XLA's compilations during a training: one for each length of batches."""

import time
from typing import List

import tensorflow.compat.v1 as tf

from engine import log
from engine.data.batches import Source
from engine.data.plan import TrainingPlan


class CompilationLog(tf.train.SessionRunHook):
    """Logs each step that has a new length, and at the end all lengths.

    Batches differ only in their length, and each replica compiles a new one in the step in which
    it first occurs (`runtime.prepare_xla`).
    """

    def __init__(self, source: Source, plan: TrainingPlan, first_step: int):
        self._source = source
        self._plan = plan
        self._first_step = self._step = first_step
        self._lengths: List[int] = []

    def before_run(self, run_context) -> None:
        """Starts the clock."""
        self._start = time.time()

    def after_run(self, run_context, run_values) -> None:
        """Logs the step if its batch has a new length."""
        length = self._source.padded_length(self._plan.global_batch(self._step))
        self._step += 1
        if length not in self._lengths:
            self._lengths.append(length)
            log.info(f"XLA compiled the layers for {length} tokens in step {self._step}, which "
                     f"took {time.time() - self._start:.1f} s")

    def end(self, session) -> None:
        """Logs all lengths."""
        count = len(self._lengths)
        log.info(f"XLA compiled the layers for {count} {'length' if count == 1 else 'lengths'} in "
                 f"{self._step - self._first_step} steps: "
                 f"{', '.join(map(str, sorted(self._lengths)))} tokens")

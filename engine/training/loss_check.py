"""Ends a training whose loss is not finite. (Mixed precision skips such a step instead.)"""

import math
from typing import Callable

import tensorflow.compat.v1 as tf

from engine.errors import UserError
from engine.training import progress_hook


class LossCheck(tf.train.SessionRunHook):
    """Ends the training at the first step whose loss is not finite.

    Not for float16, where a step that overflows is skipped. It must come before the hooks that
    write, so that nothing of that step is kept. `kept` says what was saved before it.
    """

    def __init__(self, first_step: int, kept: Callable[[], str]):
        self._step = first_step
        self._kept = kept

    def begin(self) -> None:
        """Finds the loss in the graph."""
        self._loss = progress_hook.step_values()["loss"]

    def before_run(self, run_context):
        """Asks for the loss of the step."""
        return tf.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values) -> None:
        """Raises a UserError if the loss of the step is not finite."""
        self._step += 1
        if math.isfinite(run_values.results):
            return
        raise UserError(
            f"the loss of step {self._step} is {run_values.results}, not a number to learn from: "
            "lower --learning_rate, or look for examples that the loss cannot take; "
            + self._kept())

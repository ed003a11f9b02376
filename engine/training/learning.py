"""Warns of a training that does not learn: a constant prediction would have no higher loss.

Both losses are of the same examples, so the labels of a particular batch do not matter.
"""

import math
from typing import Tuple

import numpy as np

from engine import log
from engine.data.plan import TrainingPlan
from engine.model import Baseline
from engine.training import run_record, summaries
from engine.training.settings import Schedule
from engine.training.step_hook import Step

_MIN_STEPS = 50  # a shorter run is not judged: it may have had no time to learn

_CLEARLY = 2.0  # standard errors of the mean


class LearningCheck:
    """Judges the training at each tenth of its steps, after the warm-up and a quarter of the steps.

    The means over the last tenth of the steps are compared. If the loss is not below the baseline's
    twice in a row, or at the end, a warning is recorded, and logged once. It is taken off the record
    when the loss is clearly below.

    Args:
        plan: the examples of each step.
    """

    def __init__(self, output_dir: str, schedule: Schedule, plan: TrainingPlan, baseline: Baseline):
        self._output_dir = output_dir
        self._plan = plan
        self._baseline = baseline
        self._span = schedule.num_train_steps // 10
        last, first = schedule.num_train_steps, max(
            schedule.warmup_steps, schedule.num_train_steps // 4)
        self._due = (set(range(last, first + self._span - 1, -self._span))
                     if last >= _MIN_STEPS else set())
        self._warned = False

    def add(self, step: Step) -> None:
        """Judges the run if the step is due. The curves must have been written."""
        if step.number not in self._due:
            return
        losses, bounds = self._tenth_before(step.number)
        excess = losses - bounds
        if not excess.mean() < 0:
            if step.number < max(self._due) and not self._was_above(step.number - self._span):
                return
            warning = (f"this training does not learn: its mean loss over the steps "
                       f"{step.number - self._span + 1:,} to {step.number:,} is "
                       f"{losses.mean():.4g}, and {self._baseline.description} has "
                       f"{bounds.mean():.4g} there; docs/training-options.md says what helps")
            run_record.update(self._output_dir, warning=warning)
            if not self._warned:
                log.warn(warning)
            self._warned = True
        elif excess.mean() < -_CLEARLY * excess.std() / math.sqrt(len(excess)):
            run_record.update(self._output_dir, warning=None)

    def _was_above(self, step: int) -> bool:
        """Whether the loss was not below the baseline's at the previous check."""
        losses, bounds = self._tenth_before(step)
        return step in self._due and not (losses - bounds).mean() < 0

    def _tenth_before(self, last: int) -> Tuple[np.ndarray, np.ndarray]:
        """The losses of the training and of the baseline, one for each point of the curve [n].

        Reads them from the files, which also have the steps before an interruption.
        """
        first = last - self._span
        losses, bounds = [], []
        for step, value in summaries.read_history(self._output_dir).get("loss", ()):
            if first < step <= last:
                losses.append(value)
                bounds.append(np.mean([self._baseline.loss(self._plan.global_batch(number))
                                       for number in range(first, step)]))
                first = step
        return np.array(losses or [math.nan]), np.array(bounds or [math.nan])

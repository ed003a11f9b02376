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
from engine.training.settings import Schedule, TrainingSettings
from engine.training.step_hook import Step

_MIN_STEPS = 50  # a shorter run is not judged: it may have had no time to learn

_CLEARLY = 2.0  # standard errors of the mean

# Of docs/results.md's trainings those that fail have up to 125 steps, or a rate of 2e-4, at which
# --adam_bias_correction and a lower rate help. With many classes and so few steps, a fitted output layer helps most.
_MANY_STEPS, _HIGH_RATE = 200, 2e-4


class LearningCheck:
    """Judges the training at each tenth of its steps, after the warm-up and a quarter of the steps.

    The means over the last tenth of the steps are compared. If the loss is not below the baseline's
    twice in a row, or at the end, a warning is recorded, and logged once. It is taken off the record
    when the loss is clearly below.

    Args:
        plan: the examples of each step.
        is_given_model: whether it has an --init_checkpoint.
        can_fit: whether the output layer can be fitted before the first step.
    """

    def __init__(self, output_dir: str, settings: TrainingSettings, schedule: Schedule,
                 plan: TrainingPlan, baseline: Baseline, is_given_model: bool = True, can_fit: bool = False):
        self._output_dir = output_dir
        self._settings = settings
        self._plan = plan
        self._baseline = baseline
        self._is_given_model = is_given_model
        self._can_fit = can_fit and is_given_model
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
                       f"{bounds.mean():.4g} there; {self._remedies(step.number, losses)}")
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

    def _remedies(self, step: int, losses: np.ndarray) -> str:
        """What may help, by the curve of the loss, the number of steps and the learning rate."""
        earlier = np.array([
            value for number, value in summaries.read_history(self._output_dir).get("loss", ())
            if min(self._due) - self._span < number <= step - self._span] or [math.nan])
        rises = losses.mean() - earlier.mean() > _CLEARLY * earlier.std() / math.sqrt(len(losses))
        was_fitted = bool((run_record.load(self._output_dir) or run_record.Record({}, {})).output_layer)
        many, high = max(self._due) >= _MANY_STEPS, self._settings.learning_rate >= _HIGH_RATE
        remedies = {
            "a trained model as --init_checkpoint, since none was given": not self._is_given_model,
            "a lower --learning_rate, since the loss rises": rises,
            f"a higher --learning_rate, such as {_HIGH_RATE:g}": (
                not many and not high and self._settings.adam_bias_correction and not rises),
            "--fit_output_layer, if there are many or rare classes": not many and self._can_fit and not was_fitted,
            f"more steps than {max(self._due):,}, such as more epochs": not many,
            "--adam_bias_correction": high and not self._settings.adam_bias_correction,
            "a lower --learning_rate": (many or high) and not rises,
            "a look at the data, for labels or columns that are mixed up": True}
        return f"try, in this order: {'; '.join(name for name, helps in remedies.items() if helps)}"

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

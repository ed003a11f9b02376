"""Shows the progress of a training: step, loss, learning rate, speed and the time left."""

import math
import time
from typing import List

from engine import log, progress
from engine.devices import memory
from engine.devices.devices import Devices
from engine.training.step_hook import Step, finite_mean
from engine.training.throughput import Throughput


class TrainingProgress:
    """Shows the step, loss, learning rate, speed over all replicas and time left.

    The loss is the mean since the last time it was shown. Use it as a context manager around the
    training, so that the bar is removed before an error is printed. After the training it logs the
    peak memory, and the number of skipped steps, if there are any.
    """

    def __init__(self, first_step: int, num_train_steps: int, devices: Devices,
                 reached: Throughput):
        self._first_step = first_step
        self._num_train_steps = num_train_steps
        self._devices = devices
        self._reached = reached
        self._losses: List[float] = []
        self._skipped_steps = 0
        self._start = None  # the end of the first step, whose time includes the set-up

    def __enter__(self) -> "TrainingProgress":
        self._bar = progress.bar(initial=self._first_step, total=self._num_train_steps,
                                 bar_format="step {n}/{total} |{bar}| {desc}")
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self._bar.close()
        if self._start is not None and not isinstance(error, Exception):  # also after a signal
            self._log_end()

    def add(self, step: Step) -> None:
        """Counts a step; shows the values at the first and last step, and at intervals."""
        self._losses.append(step.loss)
        self._skipped_steps += not math.isfinite(step.gradient_norm)
        self._bar.update()
        interval = progress.LINE_SECONDS if self._bar.disable else progress.BAR_SECONDS
        if (self._start is None or step.number == self._num_train_steps
                or time.time() - self._last_shown > interval):
            self._show(step)

    def _log_end(self) -> None:
        gigabytes = memory.peak_gb(self._devices)
        if gigabytes:
            log.info(f"Peak memory: {gigabytes:,.1f} GB")
        if self._skipped_steps:
            log.warn(f"skipped {progress.counted(self._skipped_steps, 'steps')} with gradients "
                     "that were not finite")

    def _show(self, step: Step) -> None:
        loss = finite_mean(self._losses)
        state = (f"loss {loss:{'.4f' if loss >= 0.001 else '.4g'}}, lr {step.learning_rate:.2e}"
                 + self._speed(step))
        if self._bar.disable or step.number == self._num_train_steps:
            log.info(f"step {step.number}/{self._num_train_steps}: {state}")
        else:
            self._bar.set_description_str(state)
        self._losses.clear()
        self._last_shown = time.time()

    def _speed(self, step: Step) -> str:
        if self._start is None:
            self._start = time.time()
            return ""
        seconds = max(time.time() - self._start, 1e-9) / (step.number - self._first_step - 1)
        left = self._bar.format_interval((self._num_train_steps - step.number) * seconds)
        rate = step.num_examples / seconds
        return f", {progress.rate(rate, 'examples')}{self._reached.describe(rate)}, {left} left"

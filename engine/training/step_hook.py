"""Hands what each training step computed to those who check, write and show it."""

import collections
import dataclasses
import math
import threading
import time
from typing import Callable, Deque, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

import multigpu_optimizer
from engine import log, progress
from engine.devices.devices import Devices
from engine.training.throughput import Throughput

_MEAN_STEPS = 100  # whose mean loss is shown, at most
_STALL_SECONDS = 600.0


class Step(NamedTuple):
    """A training step, on all replicas."""
    number: int  # the global step after it
    num_examples: int
    loss: float  # the mean of its examples
    learning_rate: float  # its update's: the schedule's value at `number - 1`
    gradient_norm: float  # not finite: the step was skipped
    loss_scale: Optional[float] = None  # None without mixed precision


class Signals(NamedTuple):
    """Whether workers have received a signal; see `stop_together`."""
    here: tf.Tensor  # a placeholder of one replica: 1 if this worker received one, by default 0
    share: tf.Tensor  # of all replicas whose placeholder is 1, the same on all workers


@dataclasses.dataclass(frozen=True)
class Replica:
    """The tensors of a step on a replica. No tuple: a strategy would take it apart."""
    completed: tf.Tensor  # see `completed_steps`
    update: multigpu_optimizer.Update
    loss: tf.Tensor  # the mean over all replicas
    signals: Optional[Signals]  # None without other workers


def completed_steps() -> tf.Tensor:
    """The number of steps before this one on a replica, an int64 scalar, which `StepHook` feeds.

    It stays on the host. With the batch it would travel to the card, and the host would wait for
    it to come back.
    """
    with tf.device("/cpu:0"):
        return tf.placeholder(tf.int64, [], name="completed_steps")


def mean_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The mean of a value of each replica, the same tensor on all of them. Called in each replica."""
    def mean(strategy: tf.distribute.Strategy, values) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None)
    return tf.distribute.get_replica_context().merge_call(mean, args=(value,))


def finite_mean(values: Sequence[float]) -> float:
    """The mean of the finite values; NaN if there are none. Those of skipped steps are not finite."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite, dtype=np.float64)) if finite else math.nan


class StepHook(tf.train.SessionRunHook):
    """Calls functions with each step.

    Args:
        replicas: those of this process.
        listeners: called with each step, in their order.
        loss_unit: the loss is multiplied by it.
    """

    def __init__(self, replicas: Sequence[Replica], first_step: int, global_batch_size: int,
                 listeners: Sequence[Callable[[Step], None]], loss_unit: float):
        self._completed = [replica.completed for replica in replicas]
        values = {"loss": replicas[0].loss, **replicas[0].update._asdict()}
        self._values = {name: values[name] for name in Step._fields if values.get(name) is not None}
        self._step = first_step
        self._global_batch_size = global_batch_size
        self._listeners = listeners
        self._loss_unit = loss_unit

    def before_run(self, run_context):
        """Asks for the values of the step, and feeds the number of those before."""
        return tf.train.SessionRunArgs(self._values, dict.fromkeys(self._completed, self._step))

    def after_run(self, run_context, run_values) -> None:
        """Calls the listeners."""
        self._step += 1
        step = Step(self._step, self._global_batch_size, **run_values.results)
        step = step._replace(loss=step.loss * self._loss_unit)
        for listener in self._listeners:
            listener(step)


class StallWarning(tf.train.SessionRunHook):
    """Warns of a step that does not end, on cards that add up gradients over NCCL.

    If one of them fails, TensorFlow waits for the others before it raises the error, and they may wait in NCCL for the
    one that has failed. Nothing ends such a step. Use it as a context manager around the training.
    """

    def __init__(self, seconds: float = _STALL_SECONDS):
        self._seconds = seconds
        self._began = math.inf  # the time at which the step began that runs now
        self._is_over = threading.Event()

    def __enter__(self) -> "StallWarning":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        self._is_over.set()

    def before_run(self, run_context) -> None:
        """A step begins."""
        self._began = time.monotonic()

    def after_run(self, run_context, run_values) -> None:
        """It has ended."""
        self._began = math.inf

    def _watch(self) -> None:
        while not self._is_over.wait(self._seconds / 10):
            if time.monotonic() - self._began > self._seconds:
                log.warn(
                    f"a step has taken {self._seconds / 60:.0f} minutes so far. If it never ends, a card has failed, perhaps "
                    "for lack of memory, and the others wait for it in NCCL. Only kill -9 ends the process then; "
                    "--all_reduce=one_device (with several machines ring) shows the error")
                return


class TrainingProgress:
    """Shows the step, loss, learning rate, speed over all replicas and time left.

    The loss is the mean of the newest tenth of the steps, at most 100, so that equal runs show the same
    at a step. Use it as a context manager around the training, so that the bar is removed before an
    error is printed. After the training it logs the peak memory, and how many steps were skipped, if any.
    """

    def __init__(self, first_step: int, num_train_steps: int, devices: Devices,
                 reached: Throughput):
        self._first_step = first_step
        self._num_train_steps = num_train_steps
        self._devices = devices
        self._reached = reached
        self._losses: Deque[float] = collections.deque(
            maxlen=min(max(num_train_steps // 10, 1), _MEAN_STEPS))
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
        gigabytes = self._devices.peak_memory_gb()
        if gigabytes:
            log.info(f"Peak memory: {gigabytes:,.1f} GB")
        if self._skipped_steps:
            log.warn(f"skipped {progress.counted(self._skipped_steps, 'steps')} with gradients "
                     "that were not finite")

    def _show(self, step: Step) -> None:
        loss = finite_mean(self._losses)
        shown = f"loss {loss:{'.4f' if loss >= 0.001 else '.4g'}}"
        is_line = self._bar.disable or step.number == self._num_train_steps
        rest = f", lr {step.learning_rate:.2e}{self._speed(step, is_line)}"
        if is_line:
            first = step.number - len(self._losses) + 1
            mean = f" (mean of steps {first} to {step.number})" if first < step.number else ""
            log.info(f"step {step.number}/{self._num_train_steps}: {shown}{mean}{rest}")
        else:
            self._bar.set_description_str(shown + rest)
        self._last_shown = time.time()

    def _speed(self, step: Step, is_line: bool) -> str:
        if self._start is None:
            self._start = time.time()
            return ""
        seconds = max(time.time() - self._start, 1e-9) / (step.number - self._first_step - 1)
        left = self._bar.format_interval((self._num_train_steps - step.number) * seconds)
        rate = step.num_examples / seconds
        reached = self._reached.describe(rate) if is_line else ""  # 80 columns have no room for it and a bar
        return f", {progress.rate(rate, 'examples')}{reached}, {left} left"

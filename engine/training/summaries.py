"""Writes the curves of a run into event files, for TensorBoard, and reads them for the report.

As with Estimator, the curves of the training are in the output directory and those of the
evaluations in its directory `eval`. The values are computed on the host: the graph has no
summaries.
"""

import contextlib
import glob
import math
import os
import time
from typing import Dict, Iterator, List, Mapping, Tuple

import tensorflow.compat.v1 as tf

from engine import log
from engine.data import record_lengths
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.training.step_hook import Step, finite_mean
from engine.training.throughput import Throughput

# Each of the first steps has a point, to show early whether a run works. Later points are spread
# evenly over the run, at most as many as a screen can show, and at the same steps in a resumed run.
# A point takes less than a millisecond.
_FIRST_STEPS = 20
_MAX_POINTS = 1000
_EVENT_BYTES = 1 << 28  # the longest event that a killed run may have left unfinished

History = Dict[str, List[Tuple[int, float]]]  # name -> (step, value), by step


class TrainingSummaries:
    """Writes points of the curves; a point covers the steps since the last one, on all replicas.

    loss, gradient_norm: the means of the finite values.
    learning_rate: that of the last step's update.
    examples_per_second, model_tflops, peak_share: missing in a process's first point, whose time
        includes the set-up; the last two also where they are unknown.
    peak_memory_gb: the process's so far; missing where it is unknown.
    loss_scale, skipped_steps: only with mixed precision; the last step's loss scale, and the
        number of skipped steps.

    Use it as a context manager around the training, to close the event file.
    """

    def __init__(self, output_dir: str, num_train_steps: int, devices: Devices,
                 reached: Throughput):
        self._output_dir = output_dir
        self._num_train_steps = num_train_steps
        self._devices = devices
        self._reached = reached
        self._writer = None
        self._point_time = None
        self._steps: List[Step] = []  # since the last point

    def __enter__(self) -> "TrainingSummaries":
        return self

    def __exit__(self, *exception) -> None:
        if self._writer:
            self._writer.close()

    def add(self, step: Step) -> None:
        """Collects the values of a step; writes a point if one is due."""
        if not self._writer:  # not earlier, so that a refused run leaves no file
            self._writer = _writer(self._output_dir)
            # On this event, TensorBoard and `read_history` drop the points that an interrupted run
            # wrote after its last checkpoint.
            self._writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), step.number)
        self._steps.append(step)
        spacing = math.ceil(self._num_train_steps / _MAX_POINTS)
        if (step.number <= _FIRST_STEPS or step.number % spacing == 0
                or step.number == self._num_train_steps):
            self._writer.add_summary(_summary(self._point()), step.number)
            self._writer.flush()
            self._steps.clear()

    def _point(self) -> Dict[str, float]:
        last, now = self._steps[-1], time.time()
        values = {
            "loss": finite_mean([step.loss for step in self._steps]),
            "learning_rate": last.learning_rate,
            "gradient_norm": finite_mean([step.gradient_norm for step in self._steps]),
            "peak_memory_gb": self._devices.peak_memory_gb() or math.nan}
        if last.loss_scale is not None:
            values.update(loss_scale=last.loss_scale, skipped_steps=sum(
                not math.isfinite(step.gradient_norm) for step in self._steps))
        if self._point_time:
            rate = sum(step.num_examples for step in self._steps) / (now - self._point_time)
            values.update(self._reached.values(rate), examples_per_second=rate)
        self._point_time = now
        return values


def write_evaluation(output_dir: str, metrics: Mapping[str, float], global_step: int) -> None:
    """Adds an evaluation's metrics to the curves in `<output_dir>/eval`."""
    directory = os.path.join(output_dir, "eval")
    with contextlib.suppress(FileExistsError):  # TensorFlow would also create a missing output_dir
        os.mkdir(directory)
    with _writer(directory) as writer:
        writer.add_summary(_summary(metrics), global_step)


def read_history(directory: str) -> History:
    """The curves in the event files of a directory.

    If a resumed run has repeated a step, its later values count.
    """
    curves: Dict[str, Dict[int, float]] = {}
    paths = glob.glob(os.path.join(glob.escape(directory), "events.out.tfevents.*"))
    events = [event for path in paths for event in _events(path)]
    for event in sorted(events, key=lambda event: event.wall_time):
        if event.session_log.status == tf.SessionLog.START:
            curves = {name: {step: value for step, value in points.items() if step < event.step}
                      for name, points in curves.items()}
        for value in event.summary.value:
            if value.HasField("simple_value"):
                curves.setdefault(value.tag, {})[event.step] = value.simple_value
    return {name: sorted(points.items()) for name, points in curves.items() if points}


def _writer(directory: str) -> tf.summary.FileWriter:
    # Two writers created in the same second would otherwise write to the same file.
    return tf.summary.FileWriter(directory, filename_suffix=f".{time.time_ns()}")


def _summary(values: Mapping[str, float]) -> tf.Summary:
    """The finite values as a summary; a curve cannot show others."""
    return tf.Summary(value=[tf.Summary.Value(tag=name, simple_value=value)
                             for name, value in values.items() if math.isfinite(value)])


def _events(path: str) -> Iterator[tf.Event]:
    """The events of a file that affect the curves."""
    try:
        record_lengths.check(path, beyond=_EVENT_BYTES)
    except UserError as error:
        log.warn(f"{error}: its curves are left out")
        return
    with contextlib.suppress(tf.errors.DataLossError):  # the event that a killed run was writing
        for event in tf.train.summary_iterator(path):
            if event.WhichOneof("what") in ("summary", "session_log"):
                yield event

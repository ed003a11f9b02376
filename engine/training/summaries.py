"""Writes the curves of a run into event files, for TensorBoard, and reads them for the report.

As with Estimator, the curves of the training are in the output directory and those of the
evaluations in its directory `eval`. The values are computed on the host: the graph has no
summaries.
"""

import glob
import math
import os
import time
from typing import Dict, Iterator, List, Mapping, Tuple

import tensorflow.compat.v1 as tf

from engine.data.batches import Source
from engine.data.plan import TrainingPlan
from engine.training import progress_hook
from engine.training.throughput import Throughput

# Each of the first steps has a point, to show early whether a run works. Later points are spread
# evenly over the run, at most as many as a screen can show, and at the same steps in a resumed run.
# A point takes less than a millisecond.
_FIRST_STEPS = 20
_MAX_POINTS = 1000
_FLUSH_SECONDS = 10  # until a point is written to disk

History = Dict[str, List[Tuple[int, float]]]  # name -> (step, value), by step


class TrainingSummaries(tf.train.SessionRunHook):
    """Writes points of the curves; a point covers the steps since the last one, on all replicas.

    loss, gradient_norm: the means of the finite values.
    learning_rate: of the last step's update, that is, the schedule's value at `step - 1`.
    examples_per_second, model_tflops, peak_share: see `throughput`; missing in a process's first
        point, whose time includes the set-up, and the last two where they are unknown.
    peak_memory_gb: of the process so far; missing where it is unknown.
    padding_share: the share of padding in the tokens of the global batches.
    loss_scale, skipped_steps: only with mixed precision; the last step's loss scale, and the
        number of skipped steps.

    Use it as a context manager around the training, to close the event file. It must come before
    the hook that saves, so that no checkpoint is on disk without the points before it.
    """

    def __init__(self, output_dir: str, source: Source, plan: TrainingPlan, *, first_step: int,
                 num_train_steps: int, save_checkpoints_steps: int, throughput: Throughput):
        self._output_dir = output_dir
        self._source = source
        self._plan = plan
        self._step = first_step
        self._num_train_steps = num_train_steps
        self._save_checkpoints_steps = save_checkpoints_steps
        self._throughput = throughput
        self._writer = None
        self._point_time = None
        self._clear()

    def __enter__(self) -> "TrainingSummaries":
        return self

    def __exit__(self, *exception) -> None:
        if self._writer:
            self._writer.close()

    def begin(self) -> None:
        """Finds the values to write in the graph."""
        self._fetches = progress_hook.step_values()

    def after_create_session(self, session, coord) -> None:
        """Opens the event file and marks the start of a session in it."""
        # Not earlier, so that a refused run leaves no file.
        self._writer = _writer(self._output_dir)
        # On this event, TensorBoard and `read_history` drop the points that an interrupted run
        # wrote after its last checkpoint.
        self._writer.add_session_log(
            tf.SessionLog(status=tf.SessionLog.START), self._step + 1)

    def before_run(self, run_context):
        """Asks for the values of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values) -> None:
        """Collects the values of the step; writes a point if one is due."""
        indices = self._plan.global_batch(self._step)
        self._results.append(run_values.results)
        self._operations += self._throughput.operations(self._step)
        self._examples += len(indices)
        self._tokens += int(self._source.lengths[indices].sum())
        self._padded_tokens += len(indices) * self._source.padded_length(indices)
        self._step += 1
        if _has_point(self._step, self._num_train_steps):
            self._write_point()
        if self._step % self._save_checkpoints_steps == 0:
            self._writer.flush()

    def _write_point(self) -> None:
        now = time.time()
        values = {
            "loss": progress_hook.finite_mean([result["loss"] for result in self._results]),
            "learning_rate": self._results[-1]["learning_rate"],
            "gradient_norm": progress_hook.finite_mean(
                [result["gradient_norm"] for result in self._results]),
            "padding_share": 1 - self._tokens / self._padded_tokens,
            **self._mixed_precision(), **self._throughput.peak_memory_gb()}
        if self._point_time:
            seconds = now - self._point_time
            values["examples_per_second"] = self._examples / seconds
            values.update(self._throughput.values(self._operations / seconds))
        self._writer.add_summary(_summary(values), self._step)
        self._point_time = now
        self._clear()

    def _mixed_precision(self) -> Dict[str, float]:
        if "loss_scale" not in self._results[-1]:
            return {}
        return {"loss_scale": self._results[-1]["loss_scale"],
                "skipped_steps": sum(not math.isfinite(result["gradient_norm"])
                                     for result in self._results)}

    def _clear(self) -> None:
        self._results = []
        self._examples = self._tokens = self._padded_tokens = 0
        self._operations = 0.0


def write_evaluation(output_dir: str, metrics: Mapping[str, float], global_step: int) -> None:
    """Adds an evaluation's metrics to the curves in `<output_dir>/eval`."""
    with _writer(os.path.join(output_dir, "eval")) as writer:
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


def _has_point(step: int, num_train_steps: int) -> bool:
    spacing = math.ceil(num_train_steps / _MAX_POINTS)
    return step <= _FIRST_STEPS or step % spacing == 0 or step == num_train_steps


def _writer(directory: str) -> tf.summary.FileWriter:
    # Two writers created in the same second would otherwise write to the same file.
    return tf.summary.FileWriter(directory, flush_secs=_FLUSH_SECONDS,
                                 filename_suffix=f".{time.time_ns()}")


def _summary(values: Mapping[str, float]) -> tf.Summary:
    """The finite values as a summary; a curve cannot show others."""
    return tf.Summary(value=[tf.Summary.Value(tag=name, simple_value=value)
                             for name, value in values.items() if math.isfinite(value)])


def _events(path: str) -> Iterator[tf.Event]:
    """The events of a file that affect the curves."""
    try:
        for event in tf.train.summary_iterator(path):
            if event.WhichOneof("what") in ("summary", "session_log"):
                yield event
    except tf.errors.DataLossError:
        pass  # the event that a killed run was writing

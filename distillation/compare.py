"""Compares trained classifiers: their size, their speed on this machine and their metrics.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2
"""

import os
import tempfile
import time
from typing import Any, Dict, List, NamedTuple

from absl import flags
import numpy as np

import tensorflow.compat.v1 as tf

from encoder import classifier, model_files
from engine import log, settings
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import command, device_flags
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.disk import scratch
from engine.errors import UserError
from engine.inference import Predictor, mode_on
from engine.model import Forward
from engine.training.settings import (
    EpochSchedule, EvaluationSettings, RunSettings, TrainingSettings)
from runs import kinds
from runs.head import Job, Model
from tasks import model_folder, task_flags
from tasks.data import TextSet

USAGE = """Compares trained classifiers on a task's dev set: a table in Markdown.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2
  python -m distillation.compare --models=scorer,small_scorer --data_dir=slots

Latency is the median time of a single example on one device; throughput is the examples per
second of the whole dev set in batches on all replicas. Both are without start-up."""

_NUM_LATENCIES = 200  # examples to take the median of


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_list("models", None, "Comma-separated directories of trained classifiers or "
                      "their exports.", flag_values=values)
    task_flags.define(values)
    settings.define_flags(values, EvaluationSettings, "eval_batch_size")
    values.set_default("eval_batch_size", 32)
    device_flags.define(values)
    return values


class Measurement(NamedTuple):
    """The speed and metrics of a model."""
    latency: float  # seconds for one example
    throughput: float  # examples per second
    metrics: Dict[str, float]


def main(values: flags.FlagValues) -> None:
    """Measures the models and prints the table."""
    for name in ("train_file", "test_file"):
        if values[name].present:
            raise UserError(f"--{name}: the models are compared on the dev set; give --dev_file")
    folders = values.models
    if not folders:
        raise UserError("--models is required")
    batch_size = settings.positive(values, "eval_batch_size")
    trained = [model_files.open_model(folder, "--models", model_files.LABELS)
               for folder in folders]
    models = [kinds.head_of(each.description()["kind"]).open(each) for each in trained]
    own = _with_task(values, models[0].own)
    for folder, model in zip(folders[1:], models[1:]):
        model_folder.check_labels(model.own.kind, own.kind, folder, "--models")
    checkpoints = [each.checkpoint for each in trained]
    devices = device_flags.find_devices(values, training=True)
    with scratch.folder(tempfile.gettempdir()) as store_dir:
        run = RunSettings(TrainingSettings(), EvaluationSettings(eval_batch_size=batch_size),
                          EpochSchedule(), None, "", store_dir)
        dev_sets: List[Any] = []
        measurements = [
            _measure(Job(kinds.head_of(own.kind.name), model._replace(own=own), devices, run),
                     checkpoint, dev_sets, values)
            for model, checkpoint in zip(models, checkpoints)]
    print("\n".join(_table(folders, models, checkpoints, measurements, devices)))


def _with_task(values: flags.FlagValues, first: Any) -> Any:
    """What the models predict, in the task that the flags choose if they read texts."""
    its_command = kinds.COMMANDS.get(first.kind.name)
    if its_command:
        task_flags.refuse_flags_of_texts(values, its_command, f"--models={values.models[0]}", "dev")
        return first
    _, task = task_flags.find(values, ["dev"], first)
    model_folder.check_labels(first.kind, task.kind, values.models[0], "--models")
    return first._replace(kind=task.kind, task=task, data_dir=task_flags.data_dir(values))


def _dev_set(job: Job, values: flags.FlagValues, prepared: List[Any]) -> Any:
    """The dev set, if possible one of those that were prepared for other models."""
    for texts in prepared:
        again = isinstance(texts, TextSet) and texts.read_by(job.model.encoding)
        if again:
            return again
    prepared.append(kinds.module_of(job.model.own.kind.name).load_dev(job, values))
    return prepared[-1]


def _measure(job: Job, checkpoint: Checkpoint, prepared: List[Any],
             values: flags.FlagValues) -> Measurement:
    forward = classifier.forward_of(job.model.config, job.model.own.kind.num_outputs)
    batch_size, speed = job.settings.evaluation.eval_batch_size, []

    def predict(source: Source) -> Dict[str, np.ndarray]:
        with Predictor(forward, job.devices) as predictor:
            predictor.restore(checkpoint)
            predictor.predict(source, batch_size)  # not timed: the first run includes set-up
            start = time.time()
            predictions = predictor.predict(source, batch_size)
            throughput = len(source.lengths) / (time.time() - start)
        speed.extend([_latency(forward, checkpoint, source, job.devices), throughput])
        return predictions

    dev_set = _dev_set(job, values, prepared)
    return Measurement(*speed, metrics=job.head.measure(job, dev_set, predict).results)


def _latency(forward: Forward, checkpoint: Checkpoint, source: Source, devices: Devices) -> float:
    """The median seconds for a single example."""
    chosen = np.arange(min(_NUM_LATENCIES, len(source.lengths)))[:, np.newaxis]
    examples = [source.fetch(one, source.padded_length(one)) for one in chosen]
    with tf.Graph().as_default(), tf.Session(config=devices.session_config) as session:
        inputs = {name: tf.placeholder(tf.int32, [1, None]) for name in examples[0]}
        logits = forward(inputs, mode_on(devices)).predictions["logits"]
        tf.train.Saver().restore(session, checkpoint.path)
        seconds: List[float] = []
        for example in [examples[0], *examples]:
            start = time.time()
            session.run(logits, {inputs[name]: example[name] for name in inputs})
            seconds.append(time.time() - start)
        return float(np.median(seconds[1:]))


def _table(folders: List[str], models: List[Model], checkpoints: List[Checkpoint],
           measurements: List[Measurement], devices: Devices) -> List[str]:
    """A table in Markdown, as lines; speeds are compared with the first model's."""
    first = measurements[0]
    metric_names = [name for name in first.metrics if name != "eval_loss"]
    header = ["", "layers × hidden", "parameters", "size", "latency, batch 1",
              f"throughput, {devices.describe()}", *metric_names]
    rows = []
    for folder, model, checkpoint, found in zip(folders, models, checkpoints, measurements):
        millions = sum(int(np.prod(checkpoint.shapes[name]))
                       for name in checkpoint.parameters()) / 1e6
        rows.append([
            log.visible(os.path.basename(os.path.abspath(folder))),
            f"{model.config.num_hidden_layers} × {model.config.hidden_size}",
            f"{millions:.1f} M", f"{millions * 4:.1f} MB",
            f"{found.latency * 1e3:.2f} ms ({first.latency / found.latency:.1f} × as fast)",
            f"{found.throughput:,.0f} examples/s ({found.throughput / first.throughput:.1f} ×)",
            *(f"{found.metrics[metric]:.3f}" for metric in metric_names)])
    return ["| " + " | ".join(row) + " |" for row in
            [header, ["---"] * len(header), *rows]]


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

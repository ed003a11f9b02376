"""Trained classifiers side by side: their size, their speed on this machine, their metrics.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2
"""

import os
import tempfile
import time
from typing import Dict, List, NamedTuple

from absl import flags
import numpy as np

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

import tensorflow.compat.v1 as tf

from encoder import classifier
from engine import checkpoints, command, run_flags
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import INFERENCE, Forward
from tasks import metrics, model_folder, task_flags
from tasks.data import TextSet, load_texts
from tasks.table import Task

USAGE = """Compares trained classifiers on a task's dev set: a table in Markdown.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2

Latency is the median time of one example on one device, throughput that of the whole dev set in
batches on all replicas, both without start-up."""

_NUM_LATENCIES = 200


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_list("models", None, "Directories of trained classifiers, or their exports, with "
                      "commas between them.", flag_values=values)
    task_flags.define(values)
    flags.DEFINE_integer("eval_batch_size", 32, "Examples of a model's --max_seq_length per "
                         "replica and step; of shorter ones, as many as have those tokens.",
                         flag_values=values)
    run_flags.define_device_flags(values)
    return values


class Measured(NamedTuple):
    """What is known of a model."""
    num_layers: int
    hidden_size: int
    num_parameters: int
    latency: float  # seconds of one example
    throughput: float  # examples a second
    metrics: Dict[str, float]


def main(values: flags.FlagValues) -> None:
    folders = values.models
    if not folders:
        raise UserError("--models is required")
    batch_size = run_flags.positive(values, "eval_batch_size")
    models = [model_folder.load(folder, "--models") for folder in folders]
    first = models[0]
    _, task = task_flags.find(values, ["dev"], (first.task.kind, first.takes_pairs))
    for folder, model in zip(folders, models):
        if (model.task.kind.name, model.task.kind.labels) != (task.kind.name, task.labels):
            raise UserError(f"{folder} is a classifier of another task: its labels are "
                            f"{', '.join(model.task.kind.labels[:20]) or 'numbers'}")
    devices = run_flags.find_devices(values, training=True)
    measured = [_measure(model, model_folder.checkpoint_of(folder, "--models"), task,
                         task_flags.data_dir(values), devices, batch_size)
                for folder, model in zip(folders, models)]
    print("\n".join(table([os.path.basename(os.path.abspath(folder)) for folder in folders],
                          measured, devices)))


def _measure(model: model_folder.TrainedModel, checkpoint: checkpoints.Checkpoint, task: Task,
             data_dir: str, devices: Devices, batch_size: int) -> Measured:
    forward = classifier.forward_of(model.config, task.kind.num_outputs)
    with tempfile.TemporaryDirectory() as store_dir:
        texts = load_texts(task, task.dev, data_dir, model.encoding, store_dir,
                           dynamic_padding=True)
        logits, seconds = _predict(forward, checkpoint, texts, devices, batch_size)
        latency, num_parameters = _latency(
            forward, checkpoint, texts.source(with_labels=False), devices)
        kind, labels = task.kind, texts.labels
        scores = metrics.evaluate(task.metrics, labels, kind.predicted(kind.scores(logits)),
                                  kind.losses(logits, labels))
    return Measured(model.config.num_hidden_layers, model.config.hidden_size, num_parameters,
                    latency, len(texts) / seconds, scores)


def _predict(forward: Forward, checkpoint: checkpoints.Checkpoint, texts: TextSet,
             devices: Devices, batch_size: int):
    """The outputs for all texts, and the seconds that they took."""
    source = texts.source(with_labels=False)
    with Predictor(forward, source, devices) as predictor:
        predictor.restore(checkpoint)
        predictor.predict(source, batch_size)  # the first time, devices set themselves up
        start = time.time()
        logits = predictor.predict(source, batch_size)["logits"]
        return logits, time.time() - start


def _latency(forward: Forward, checkpoint: checkpoints.Checkpoint, source: Source,
             devices: Devices):
    """Seconds of an example alone, the median, and the number of the model's parameters."""
    chosen = np.arange(min(_NUM_LATENCIES, len(source.lengths)))
    examples = [source.fetch(chosen[i:i + 1], source.padded_length(chosen[i:i + 1]))
                for i in chosen]
    with tf.Graph().as_default(), tf.Session(config=devices.session_config) as session:
        inputs = {name: tf.placeholder(tf.int32, [1, None]) for name in examples[0]}
        logits = forward(inputs, INFERENCE).predictions["logits"]
        variables = tf.trainable_variables()
        tf.train.Saver(variables).restore(session, checkpoint.path)
        seconds: List[float] = []
        for example in [examples[0]] + examples:
            start = time.time()
            session.run(logits, {inputs[name]: example[name] for name in inputs})
            seconds.append(time.time() - start)
        return float(np.median(seconds[1:])), sum(v.shape.num_elements() for v in variables)


def table(names: List[str], measured: List[Measured], devices: Devices) -> List[str]:
    """Lines of Markdown; speeds and sizes beside those of the first model."""
    first = measured[0]
    metric_names = [name for name in first.metrics if name != "eval_loss"]
    header = ["", "layers × hidden", "parameters", "size", "latency, batch 1",
              f"throughput, {devices.describe()}", *metric_names]
    rows = [[name, f"{model.num_layers} × {model.hidden_size}",
             f"{model.num_parameters / 1e6:.1f} M", f"{model.num_parameters * 4 / 1e6:.1f} MB",
             f"{model.latency * 1e3:.2f} ms ({first.latency / model.latency:.1f} × as fast)",
             f"{model.throughput:,.0f} examples/s "
             f"({model.throughput / first.throughput:.1f} ×)",
             *(f"{model.metrics[metric]:.3f}" for metric in metric_names)]
            for name, model in zip(names, measured)]
    return ["| " + " | ".join(row) + " |" for row in
            [header, ["---"] * len(header), *rows]]


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Compares trained classifiers: their size, their speed on this machine and their metrics.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2
"""

import os
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Tuple

from absl import flags
import numpy as np

import tensorflow.compat.v1 as tf

from encoder import classifier, model_files
from encoder.encoding import Encoding
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.cli import command, device_flags
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.disk import scratch
from engine.errors import UserError
from engine.inference import Predictor, mode_on
from engine.model import Forward
from engine.training.settings import EvaluationSettings
from runs.head import Model
from tasks import capabilities, metrics, model_folder, task_flags
from tasks.data import TextSet, load_texts
from tasks.table import Task

USAGE = """Compares trained classifiers on a task's dev set: a table in Markdown.

  python -m distillation.compare --models=teacher,student --task_name=sst-2 --data_dir=glue/SST-2
  python -m distillation.compare --models=scorer,small_scorer --data_dir=slots

Latency is the median time of a single example on one device; throughput is the examples per
second of the whole dev set in batches on all replicas. Both are without start-up."""

_NUM_LATENCIES = 200  # examples to take the median of

LoadDevSet = Callable[[Encoding, str], capabilities.DevSet]  # (encoding, folder of the store)


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
    """The size, speed and metrics of a model."""
    num_layers: int
    hidden_size: int
    num_parameters: int
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
    models = [model_folder.load(folder, "--models") for folder in folders]
    load_dev_set = _dev_sets(values, models[0])
    for folder, model in zip(folders[1:], models[1:]):
        model_folder.check_labels(model.own.kind, models[0].own.kind, folder, "--models")
    devices = device_flags.find_devices(values, training=True)
    with scratch.folder(tempfile.gettempdir()) as store_dir:
        measurements = [_measure(model, model_files.open_model(folder, "--models").checkpoint,
                                 load_dev_set(model.encoding, store_dir), devices, batch_size)
                        for folder, model in zip(folders, models)]
    names = [log.visible(os.path.basename(os.path.abspath(folder))) for folder in folders]
    print("\n".join(table(names, measurements, devices)))


def _dev_sets(values: flags.FlagValues, first: Model) -> LoadDevSet:
    """The dev set of the models' task, as a function of a model's encoding and a store's folder."""
    capability = capabilities.of_model(first.own.kind)
    if capability:
        task_flags.refuse_flags_of_texts(values, capability.command,
                                         f"--models={values.models[0]}", "dev")
        return lambda encoding, store_dir: capability.load_dev_set(encoding, store_dir, values)
    _, task = task_flags.find(values, ["dev"], first.own.labels)
    model_folder.check_labels(first.own.kind, task.kind, values.models[0], "--models")
    data_dir = task_flags.data_dir(values)
    prepared: List[TextSet] = []

    def load(encoding: Encoding, store_dir: str) -> capabilities.DevSet:
        texts = next((texts for texts in prepared if _is_read_alike(texts, encoding)), None)
        if not texts:
            texts = load_texts(task, task.dev, data_dir, encoding, store_dir, dynamic_padding=True)
            prepared.append(texts)
        return _dev_set_of_task(task, texts, encoding.max_seq_length)

    return load


def _is_read_alike(texts: TextSet, encoding: Encoding) -> bool:
    """Whether an encoding would give the same ids: that of the set, or one that cuts no text."""
    first, second = (each._replace(tokenizer=None, vocab_file="")  # its content has a hash
                     for each in (texts.encoding, encoding))
    if not texts.num_cut and texts.records.lengths("input_ids").max() <= second.max_seq_length:
        second = second._replace(max_seq_length=first.max_seq_length, long_texts=first.long_texts)
    return first == second


def _dev_set_of_task(task: Task, texts: TextSet, max_length: int) -> capabilities.DevSet:
    kind, labels = task.kind, texts.labels

    def evaluate(logits: np.ndarray) -> Dict[str, float]:
        logits = texts.combined(logits)
        return metrics.evaluate(task.metrics, labels, kind.predicted_labels(kind.scores(logits)),
                                kind.losses(logits, labels))

    source = texts.source(with_labels=False)._replace(max_length=max_length)
    return capabilities.DevSet(source, evaluate)


def _measure(model: Model, checkpoint: checkpoints.Checkpoint, dev_set: capabilities.DevSet,
             devices: Devices, batch_size: int) -> Measurement:
    forward = classifier.forward_of(model.config, model.own.kind.num_outputs)
    logits, seconds = _predict(forward, checkpoint, dev_set.source, devices, batch_size)
    latency, num_parameters = _latency(forward, checkpoint, dev_set.source, devices)
    return Measurement(model.config.num_hidden_layers, model.config.hidden_size, num_parameters,
                       latency, len(dev_set.source.lengths) / seconds, dev_set.evaluate(logits))


def _predict(forward: Forward, checkpoint: checkpoints.Checkpoint, source: Source,
             devices: Devices, batch_size: int) -> Tuple[np.ndarray, float]:
    """The logits of all examples, and the seconds that they took."""
    with Predictor(forward, source, devices) as predictor:
        predictor.restore(checkpoint)
        predictor.predict(source, batch_size)  # not timed: the first run includes set-up
        start = time.time()
        logits = predictor.predict(source, batch_size)["logits"]
        return logits, time.time() - start


def _latency(forward: Forward, checkpoint: checkpoints.Checkpoint, source: Source,
             devices: Devices) -> Tuple[float, int]:
    """The median seconds for a single example, and the number of the model's parameters."""
    chosen = np.arange(min(_NUM_LATENCIES, len(source.lengths)))
    examples = [source.fetch(chosen[i:i + 1], source.padded_length(chosen[i:i + 1]))
                for i in chosen]
    with tf.Graph().as_default(), tf.Session(config=devices.session_config) as session:
        inputs = {name: tf.placeholder(tf.int32, [1, None]) for name in examples[0]}
        logits = forward(inputs, mode_on(devices)).predictions["logits"]
        variables = tf.trainable_variables()
        tf.train.Saver(variables).restore(session, checkpoint.path)
        seconds: List[float] = []
        for example in [examples[0]] + examples:
            start = time.time()
            session.run(logits, {inputs[name]: example[name] for name in inputs})
            seconds.append(time.time() - start)
        return float(np.median(seconds[1:])), sum(v.shape.num_elements() for v in variables)


def table(names: List[str], measurements: List[Measurement], devices: Devices) -> List[str]:
    """A table in Markdown, as lines; speeds are compared with the first model's."""
    first = measurements[0]
    metric_names = [name for name in first.metrics if name != "eval_loss"]
    header = ["", "layers × hidden", "parameters", "size", "latency, batch 1",
              f"throughput, {devices.describe()}", *metric_names]
    rows = [[name, f"{model.num_layers} × {model.hidden_size}",
             f"{model.num_parameters / 1e6:.1f} M", f"{model.num_parameters * 4 / 1e6:.1f} MB",
             f"{model.latency * 1e3:.2f} ms ({first.latency / model.latency:.1f} × as fast)",
             f"{model.throughput:,.0f} examples/s "
             f"({model.throughput / first.throughput:.1f} ×)",
             *(f"{model.metrics[metric]:.3f}" for metric in metric_names)]
            for name, model in zip(names, measurements)]
    return ["| " + " | ".join(row) + " |" for row in
            [header, ["---"] * len(header), *rows]]


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

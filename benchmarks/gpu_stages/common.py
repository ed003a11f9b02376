"""What the stages of `benchmarks.gpu` share: models and examples made up here, a measured training.

Nothing is downloaded or read: weights are random, and every example fills its length.
"""

import contextlib
import os
import tempfile
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

import numpy as np

from engine.devices import runtime

import modeling
import tensorflow.compat.v1 as tf
from engine.checkpoints import checkpoints
from engine.data.batches import Features, Source
from engine.devices import devices
from engine.devices.devices import FLOAT32, Devices
from engine.model import INFERENCE, Forward, Training
from engine.training import loop
from engine.training.settings import (
    EvaluationSettings, RunSettings, StepSchedule, TrainingSettings)


class Machine(NamedTuple):
    """Where the stages run."""
    num_cards: int
    toy: bool  # toy sizes, and virtual CPU devices instead of cards
    huggingface_python: str  # an interpreter that may have torch and transformers

    def devices(self, cell: "Cell") -> Devices:
        """What a training of the cell runs on."""
        if self.toy:
            return devices.find_devices(devices.DeviceSettings(num_cpu_replicas=cell.num_cards * cell.replicas_per_card))
        return devices.find_devices(devices.DeviceSettings(num_gpus=cell.num_cards, replicas_per_gpu=cell.replicas_per_card))

    def config(self, name: str, **changes: Any) -> modeling.BertConfig:
        """A BERT "mini", "base" or "large"."""
        hidden, layers = (32, 2) if self.toy else _SIZES[name]
        return modeling.BertConfig(**{**dict(
            vocab_size=100 if self.toy else 30522, hidden_size=hidden,
            num_hidden_layers=layers, num_attention_heads=2 if self.toy else hidden // 64,
            intermediate_size=4 * hidden, type_vocab_size=2), **changes})

    def length(self, tokens: int) -> int:
        """The number of tokens, or an eighth of it, at least 8, at toy size."""
        return max(tokens // 8, 8) if self.toy else tokens


_SIZES = {"mini": (256, 4), "base": (768, 12), "large": (1024, 24)}  # hidden size, layers


class Cell(NamedTuple):
    """A training to measure."""
    task: str  # "fine-tuning" or "pretraining"
    size: str  # "mini", "base" or "large"
    length: int
    precision: str
    xla: bool = False
    num_cards: int = 1
    replicas_per_card: int = 1

    @property
    def name(self) -> str:
        """For the stage and its file."""
        return "-".join([*map(str, self[:4]), *["xla"] * self.xla,
                         *[f"{self.num_cards}-cards"] * (self.num_cards > 1),
                         *[f"{self.replicas_per_card}-replicas"] * (self.replicas_per_card > 1)])


class Enough(Exception):
    """Raised by a hook: the steps to measure are done, and need no checkpoint."""


def examples(config: modeling.BertConfig, length: int, count: int = 4096,
             **more: Callable[[int], np.ndarray]) -> Source:
    """`count` examples with `length` tokens each.

    Args:
        more: further features, as functions from a batch size.
    """
    ids = np.random.RandomState(0).randint(config.vocab_size, size=[count, length]).astype(np.int32)

    def fetch(indices: np.ndarray, length: int) -> Features:
        shape = [len(indices), length]
        return {"input_ids": ids[indices, :length], "input_mask": np.ones(shape, np.int32),
                "segment_ids": np.zeros(shape, np.int32),
                **{name: make(len(indices)) for name, make in more.items()}}

    return Source(np.full(count, length), fetch, length)


def classes(size: int) -> np.ndarray:
    """Labels of two classes, [size]."""
    return (np.arange(size) % 2).astype(np.int32)


def prepare(cell: Cell) -> None:
    """What a command does before it looks for devices."""
    if cell.xla:
        runtime.prepare_xla()
    runtime.allow_tensor_float_32(cell.precision != FLOAT32)


def train(cell: Cell, batch_size: int, forward: Forward, source: Source, on: Devices, num_steps: int,
          output_dir: str, start: Optional[checkpoints.Checkpoint] = None,
          hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
    """A training by the engine's loop."""
    how = TrainingSettings(
        train_batch_size=batch_size, seed=7, precision=cell.precision, xla=cell.xla)
    settings = RunSettings(how, EvaluationSettings(), StepSchedule(num_steps, 0), start, output_dir, "")
    loop.take_steps(loop.Run({}, settings, on, Training(
        len(source.lengths), "", forward, lambda: source)), more_hooks=hooks)


@contextlib.contextmanager
def saved_model(forward: Forward, source: Source) -> Iterator[checkpoints.Checkpoint]:
    """A checkpoint of the model with random weights, made on the CPU."""
    no_card = tf.ConfigProto(device_count={"GPU": 0})
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "bert_model.ckpt")
        with tf.Graph().as_default(), tf.Session(config=no_card) as session:
            tf.set_random_seed(1)
            features = source.fetch(np.zeros(1, np.int64), source.max_length)
            forward({name: tf.constant(value) for name, value in features.items()}, INFERENCE)
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, path, write_meta_graph=False, write_state=False)
        yield checkpoints.open_checkpoint(path)

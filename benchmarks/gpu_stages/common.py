"""What the stages of `benchmarks.gpu` share: models and examples made up here, a measured training.

Nothing is downloaded or read: weights are random, and every example fills its length.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import tempfile
import time
from concurrent import futures
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from engine.devices import runtime

import modeling
import tensorflow.compat.v1 as tf
from engine.checkpoints import checkpoints
from engine.data.batches import Features, Source
from engine.devices import devices, memory
from engine.devices.devices import Devices
from engine.devices.precision import FLOAT32
from engine.errors import UserError
from engine.model import INFERENCE, Forward
from engine.training import loop
from engine.training.settings import (
    EvaluationSettings, RunSettings, StepSchedule, TrainingSettings)

VOCAB_SIZE = 30522
TIMED_STEPS, WARM_UP_STEPS = 20, 5
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


class Machine(NamedTuple):
    """Where the stages run."""
    num_cards: int
    toy: bool  # toy sizes, and virtual CPU devices instead of cards
    huggingface_python: str  # an interpreter that may have torch and transformers

    def devices(self, num_replicas: int = 1, *, replicas_per_gpu: int = 1,
                training: bool = True) -> Devices:
        """So many cards, with so many replicas on each."""
        if self.toy:
            return devices.find_devices(num_cpu_replicas=num_replicas * replicas_per_gpu,
                                        training=training)
        return devices.find_devices(num_gpus=num_replicas, replicas_per_gpu=replicas_per_gpu,
                                    training=training)

    def device_flags(self, num_replicas: int = 1) -> List[str]:
        """The same devices for a command."""
        return [f"--num_{'cpu_replicas' if self.toy else 'gpus'}={num_replicas}"]

    def config(self, name: str, **changes: Any) -> modeling.BertConfig:
        """A BERT "mini", "base" or "large"."""
        hidden, layers = (32, 2) if self.toy else _SIZES[name]
        return modeling.BertConfig(**{**dict(
            vocab_size=100 if self.toy else VOCAB_SIZE, hidden_size=hidden,
            num_hidden_layers=layers, num_attention_heads=2 if self.toy else hidden // 64,
            intermediate_size=4 * hidden, type_vocab_size=2), **changes})

    def length(self, tokens: int) -> int:
        """The number of tokens, or an eighth of it, at least 8, at toy size."""
        return max(tokens // 8, 8) if self.toy else tokens


_SIZES = {"mini": (256, 4), "base": (768, 12), "large": (1024, 24)}  # hidden size, layers


class Clock(tf.train.SessionRunHook):
    """Ends a training after so many steps, without a checkpoint; remembers when each step ended."""

    def __init__(self, num_steps: int):
        self._num_steps = num_steps
        self.ends: List[float] = []

    def after_run(self, run_context, run_values) -> None:
        """Raises `Enough` after the last step."""
        self.ends.append(time.time())
        if len(self.ends) == self._num_steps:
            raise Enough()


class Enough(Exception):
    """The steps to measure are done."""


class Measured(NamedTuple):
    """A training of some steps."""
    step_seconds: float  # the mean, after the first steps
    first_step_seconds: float  # with building the graph and compiling
    memory_gb: Optional[float]  # the most that was in use at a time; None: unknown


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


def settings(batch_size: int, **changes: Any) -> TrainingSettings:
    """How to train, with the seed of all stages."""
    return TrainingSettings(train_batch_size=batch_size, **{"seed": 7, "xla": False, **changes})


def prepare(precision: str, xla: bool = False) -> None:
    """What a command does before it looks for devices."""
    if xla:
        runtime.prepare_xla()
    runtime.allow_tensor_float_32(precision != FLOAT32)


def train(forward: Forward, source: Source, on: Devices, how: TrainingSettings, num_steps: int,
          output_dir: str, start: Optional[checkpoints.Checkpoint] = None,
          hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
    """A training by the engine's loop."""
    settings = RunSettings(how, EvaluationSettings(), StepSchedule(num_steps, 0), start, output_dir, "")
    loop.train(loop.Run({}, settings, on, len(source.lengths), forward, lambda: source),
               more_hooks=hooks)


def measure(forward: Forward, source: Source, on: Devices, how: TrainingSettings,
            num_steps: int = WARM_UP_STEPS + TIMED_STEPS) -> Measured:
    """Trains for some steps. Raises a UserError if the memory does not suffice."""
    clock, start = Clock(num_steps), time.time()
    if _has_memory_info(on):
        for index in range(on.num_replicas):
            tf.config.experimental.reset_memory_stats(f"GPU:{index}")
    with tempfile.TemporaryDirectory() as output_dir, contextlib.suppress(Enough):
        train(forward, source, on, how, 10 ** 6, output_dir, hooks=[clock])
    timed = clock.ends[min(WARM_UP_STEPS, num_steps - 1) - 1:]
    return Measured((timed[-1] - timed[0]) / max(len(timed) - 1, 1), clock.ends[0] - start,
                    memory.peak_gb(on))


def measure_what_fits(forward: Forward, source: Source, on: Devices, how: TrainingSettings
                      ) -> Dict[str, Any]:
    """As `measure`, with half the batch as often as the memory does not suffice.

    Returns:
        batch, sequences_per_second, first_step_seconds, memory_gb.
    """
    while True:
        try:
            measured = measure(forward, source, on, how)
        except UserError as error:
            if not is_out_of_memory(error) or how.train_batch_size == 1:
                raise
            how = dataclasses.replace(how, train_batch_size=how.train_batch_size // 2)
            continue
        return {"batch": how.train_batch_size,
                "sequences_per_second":
                    how.train_batch_size * on.num_replicas / measured.step_seconds,
                "first_step_seconds": measured.first_step_seconds,
                "memory_gb": measured.memory_gb}


def is_out_of_memory(error: UserError) -> bool:
    """Whether the error is that of `engine.devices.memory`."""
    return str(error).startswith("out of memory")


def _has_memory_info(on: Devices) -> bool:
    return on.kind == "GPU" and not runtime.IS_TENSORFLOW_1


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


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a process of its own, since TensorFlow makes its devices once in each."""
    with futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()

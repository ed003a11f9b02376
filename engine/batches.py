"""From planned indices to padded batches: `tf.data` pipelines over records in memory.

Knows the plan and how long a batch must be; what a record holds is its source's affair.
"""

from typing import Callable, Dict, List, NamedTuple, Sequence, Union

import numpy as np
import tensorflow.compat.v1 as tf

from engine.plan import InferenceBatch, TrainingPlan

# Batches are padded to a multiple of this: odd lengths are slow in matrix products,
# and fewer different shapes reach the device's allocator.
LENGTH_MULTIPLE = 8

Features = Dict[str, np.ndarray]


class Source(NamedTuple):
    """Records that a run trains on or scores.

    Attributes:
        lengths: tokens of each record, [n].
        fetch: (indices [b], length) -> features of those records, each [b, ...], with
            sequences padded to `length`.
        max_length: the longest that a batch may be.
        dynamic_padding: pad to the longest record of the global batch; False pads
            every batch to `max_length`.
        length_multiple: pad to a multiple of so many tokens.
    """
    lengths: np.ndarray
    fetch: Callable[[np.ndarray, int], Features]
    max_length: int
    dynamic_padding: bool = True
    length_multiple: int = LENGTH_MULTIPLE

    def padded_length(self, indices: np.ndarray) -> int:
        """Length of the batch of these records: the same for every replica that shares it."""
        return int(self.padded_lengths(indices).max())

    def padded_lengths(self, indices: Union[slice, np.ndarray] = slice(None)) -> np.ndarray:
        """Length of each of these records in a batch of its own."""
        lengths = self.lengths[indices]
        if not self.dynamic_padding:
            return np.full(len(lengths), self.max_length)
        multiples = -(-lengths // self.length_multiple) * self.length_multiple
        return np.minimum(multiples, self.max_length)


def training_dataset(source: Source, plan: TrainingPlan, *, num_replicas: int,
                     per_replica_batch_size: int, first_step: int,
                     last_step: int) -> tf.data.Dataset:
    """Per-replica batches of steps first_step..last_step - 1, in order.

    `num_replicas` consecutive elements are the global batch of one step: replica r
    gets its r-th part.
    """
    names, dtypes, shapes = _signature(source)

    def fetch(element: np.ndarray) -> List[np.ndarray]:
        step, replica = divmod(int(element), num_replicas)
        indices = plan.global_batch(step)
        part = indices[replica * per_replica_batch_size:][:per_replica_batch_size]
        features = source.fetch(part, source.padded_length(indices))
        return [features[name] for name in names]

    def to_features(element: tf.Tensor) -> Dict[str, tf.Tensor]:
        values = tf.numpy_function(fetch, [element], dtypes)
        for value, shape in zip(values, shapes):
            value.set_shape([per_replica_batch_size] + shape)
        return dict(zip(names, values))

    elements = tf.data.Dataset.range(first_step * num_replicas, last_step * num_replicas)
    return elements.map(to_features, num_parallel_calls=2).prefetch(2 * num_replicas)


class InferenceFeed:
    """Feeds one graph with one set of examples after another.

    Set `source` and `batches`, then run the initializer of the dataset's iterator.
    """

    def __init__(self, source: Source, num_replicas: int):
        self.source = source
        self.batches: Sequence[InferenceBatch] = []
        self._num_replicas = num_replicas

    def dataset(self) -> tf.data.Dataset:
        """One element per step: a tuple with the features of each replica.

        A replica without examples gets one of another's, since it cannot have none; the
        reader drops its answer.
        """
        names, dtypes, shapes = _signature(self.source)

        def fetch(step: np.ndarray) -> List[np.ndarray]:
            indices, sizes = self.batches[int(step)]
            length = self.source.padded_length(indices)
            parts = np.split(indices, np.cumsum(sizes)[:-1])
            answers = [self.source.fetch(part if len(part) else indices[:1], length)
                       for part in parts]
            return [features[name] for features in answers for name in names]

        def to_features(step: tf.Tensor) -> tuple:
            values = tf.numpy_function(fetch, [step], dtypes * self._num_replicas)
            for value, shape in zip(values, shapes * self._num_replicas):
                value.set_shape([None] + shape)
            return tuple(dict(zip(names, values[i:i + len(names)]))
                         for i in range(0, len(values), len(names)))

        num_steps = tf.numpy_function(lambda: np.int64(len(self.batches)), [], tf.int64)
        steps = tf.data.Dataset.range(tf.ensure_shape(num_steps, []))
        return steps.map(to_features, num_parallel_calls=2).prefetch(2)


def _signature(source: Source):
    """Names, types and shapes (without the batch) of the features, seen on the first record."""
    example = source.fetch(np.zeros(1, np.int64), source.max_length)
    names = sorted(example)
    dtypes = [tf.as_dtype(example[name].dtype) for name in names]
    shapes = [[None] * (example[name].ndim - 1) for name in names]
    return names, dtypes, shapes

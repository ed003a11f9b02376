"""Turns planned indices into padded batches: `tf.data` pipelines over records in memory.

This module knows the plan and the length of a batch; only the source knows the content of a
record.
"""

from typing import Callable, Dict, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

from engine.data.plan import TrainingPlan
from engine.data.store import Records
from engine.devices import runtime

# Batches are padded to a multiple of this: matrix products are slow at odd lengths, and
# the device's allocator does better with fewer different shapes.
LENGTH_MULTIPLE = 8

Features = Dict[str, np.ndarray]


def token_features(records: Records, indices: np.ndarray, length: int) -> Features:
    """The inputs of an encoder: input_ids, input_mask and segment_ids, int32 [b, length].

    `records` have the columns "input_ids" and "first_segment_length".
    """
    positions = np.arange(length)
    filled = positions < records.lengths("input_ids", indices)[:, np.newaxis]
    second = positions >= records.scalars("first_segment_length", indices)[:, np.newaxis]
    return {"input_ids": records.padded("input_ids", indices, length).astype(np.int32),
            "input_mask": filled.astype(np.int32),
            "segment_ids": (filled & second).astype(np.int32)}


class Source(NamedTuple):
    """Records that a run trains on or scores.

    Attributes:
        lengths: tokens of each record, [n].
        fetch: (indices [b], *lengths) -> features of those records, each [b, ...], with
            sequences padded to the lengths of `lengths_of_batch`.
        max_length: the largest length of a batch.
        dynamic_padding: pad to the longest record of the global batch; False pads
            every batch to `max_length`.
        length_multiple: lengths of batches are rounded up to a multiple of this, within
            `max_length`.
        buckets: the allowed lengths of batches, ascending; None allows every multiple of
            `length_multiple`.
        fetch_for_step: replaces `fetch` in training if features depend on the whole step:
            (indices of all records of a step [b], length) -> features.
        keys: see `TrainingPlan`.
        encoded: tokens of each text of a record, [n, s], if they are encoded one by one; the
            first ones of a batch have a length of their own.
    """
    lengths: np.ndarray
    fetch: Callable[..., Features]
    max_length: int
    dynamic_padding: bool = True
    length_multiple: int = LENGTH_MULTIPLE
    buckets: Optional[np.ndarray] = None
    fetch_for_step: Optional[Callable[[np.ndarray, int], Features]] = None
    keys: Optional[np.ndarray] = None
    encoded: Optional[np.ndarray] = None

    @property
    def most_tokens(self) -> int:
        """The most tokens that an example can have in a batch, with padding, in all its texts."""
        return self.max_length * (1 if self.encoded is None else self.encoded.shape[1])

    def padded_length(self, indices: np.ndarray) -> int:
        """The length of a batch of these records, the same on all replicas that share it."""
        return int(self.padded_lengths(indices).max())

    def padded_lengths(self, indices: Union[slice, np.ndarray] = slice(None)) -> np.ndarray:
        """For each of these records, the length of a batch that holds only that record, [n]."""
        return self._padded(self.lengths[indices])

    def lengths_of_batch(self, indices: np.ndarray) -> Tuple[int, ...]:
        """The length of a batch of these records; with `encoded`, of their first and of their other texts."""
        if self.encoded is None:
            return self.padded_length(indices),
        texts = self.encoded[indices]
        return tuple(int(self._padded(part).max()) for part in (texts[:, 0], texts[:, 1:]))

    def _padded(self, lengths: np.ndarray) -> np.ndarray:
        if not self.dynamic_padding:
            return np.full(lengths.shape, self.max_length)
        if self.buckets is not None:
            return self.buckets[np.searchsorted(self.buckets, lengths)]
        multiples = -(-lengths // self.length_multiple) * self.length_multiple
        return np.minimum(multiples, self.max_length)

    def subset(self, indices: Union[slice, np.ndarray]) -> "Source":
        """These records, in this order, for inference."""
        numbers = np.arange(len(self.lengths))[indices]
        return self._replace(lengths=self.lengths[numbers],
                             fetch=lambda chosen, length: self.fetch(numbers[chosen], length))


def training_dataset(source: Source, plan: TrainingPlan, *, replicas: range,
                     per_replica_batch_size: int, first_step: int,
                     last_step: int) -> tf.data.Dataset:
    """The features of per-replica batches of steps first_step..last_step - 1, in order.

    `len(replicas)` consecutive elements are this process's share of the global batch of one step;
    the r-th of them is for the r-th of its replicas.

    Args:
        replicas: the numbers of the replicas that this process feeds.
    """
    def fetch(step: int) -> Features:
        return training_share(source, plan, replicas, per_replica_batch_size, step)

    def to_features(step: tf.Tensor) -> Dict[str, tf.Tensor]:
        example = fetch(first_step)
        values = tf.numpy_function(lambda step: list(map(fetch(int(step)).get, example)), [step],
                                   [each.dtype for each in example.values()])
        for value, each in zip(values, example.values()):
            value.set_shape([*each.shape[:2], *[None] * (each.ndim - 2)])
        return dict(zip(example, values))

    steps = tf.data.Dataset.range(first_step, last_step)
    return runtime.without_autotuning(steps.map(to_features, num_parallel_calls=2).unbatch()
                                      .prefetch(2 * len(replicas)))


def training_share(source: Source, plan: TrainingPlan, replicas: range,
                   per_replica_batch_size: int, step: int) -> Features:
    """The features of a step for these replicas, [len(replicas), per_replica_batch_size, ...]."""
    share = slice(replicas.start * per_replica_batch_size, replicas.stop * per_replica_batch_size)
    indices = plan.global_batch(step)
    lengths = source.lengths_of_batch(indices)
    if source.fetch_for_step:
        features = source.fetch_for_step(indices, *lengths)
        features = {name: values[share] for name, values in features.items()}
    else:
        features = source.fetch(indices[share], *lengths)
    return {name: values.reshape(len(replicas), per_replica_batch_size, *values.shape[1:])
            for name, values in features.items()}

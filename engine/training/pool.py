"""A loss over the examples of a whole step, wherever they are computed.

A part of a step is a micro-batch of a replica. Each part computes the loss of the whole step and treats
the vectors of the other parts as constants. The gradients of the parts then add up to the gradient of
the step. Replicas exchange vectors, and gradients as in any other training.
"""

from typing import Callable, Optional, Union

import tensorflow.compat.v1 as tf

from engine.model import Outputs

Index = Union[int, tf.Tensor]  # of a micro-batch


class Loss:
    """The loss of a micro-batch, for `optimization.mean_gradients`. Each replica has its own.

    A loss over the pool is the same for all parts. Its gradient is multiplied by their number,
    because it is averaged over them.

    Several micro-batches are computed twice, with the same dropout: first without a gradient, for
    the vectors of all (Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup").

    Args:
        outputs_of: computes a micro-batch. It is called as `mean_gradients` calls its function
            and, for a loss over the pool, once more in a loop.
        replica: the number of the replica.
    """

    def __init__(self, outputs_of: Callable[[Index], Outputs], num_micro_batches: int,
                 replica: tf.Tensor):
        self._pool: Optional[tf.Tensor] = None  # the vectors of all examples of the step, once they are known
        self._outputs_of = outputs_of
        self._num_micro_batches = num_micro_batches
        self._replica = replica

    def __call__(self, index: Index) -> tf.Tensor:
        outputs = self._outputs_of(index)
        if outputs.pooled is None:
            return outputs.loss
        vectors = outputs.pooled.vectors
        if self._pool is None:
            self._pool = _exchanged(_without_gradient(_of_all_micro_batches(
                vectors, self._outputs_of, self._num_micro_batches)), self._replica)
        parts = tf.distribute.get_strategy().num_replicas_in_sync * self._num_micro_batches
        own = self._replica * self._num_micro_batches + index
        change = _placed(vectors - tf.stop_gradient(vectors), own, parts)  # zero, with a gradient
        loss = outputs.pooled.loss(self._pool + change)
        value = tf.stop_gradient(loss)
        return value + parts * (loss - value)


def _of_all_micro_batches(first: tf.Tensor, outputs_of: Callable[[Index], Outputs],
                          count: int) -> tf.Tensor:
    """The vectors [count * b, w] of a replica's micro-batches; `first` [b, w] are the first ones."""
    if count == 1:
        return first

    def add(index, parts):
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            vectors = outputs_of(index).pooled.vectors
        return index + 1, parts.write(index, vectors)

    with tf.control_dependencies([first]):
        second = tf.constant(1)
    _, parts = tf.while_loop(
        lambda index, parts: index < count, add,
        [second, tf.TensorArray(tf.float32, count).write(0, first)],
        parallel_iterations=1, back_prop=False)
    vectors = parts.concat()
    vectors.set_shape([count * first.shape[0], first.shape[1]])
    return vectors


def _without_gradient(vectors: tf.Tensor) -> tf.Tensor:
    """The vectors as constants. In a loop, `tf.gradients` would enter the loop behind a stop_gradient."""
    return tf.bitcast(tf.bitcast(vectors, tf.int32), tf.float32)


def _exchanged(vectors: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
    """The vectors of all replicas, in the order of the plan's examples.

    TensorFlow 1.15 cannot gather in a replica; so each adds its own rows to zeros.
    """
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if num_replicas == 1:
        return vectors

    def add_up(strategy: tf.distribute.Strategy, rows, variable):
        total, = strategy.extended.batch_reduce_to(
            tf.distribute.ReduceOp.SUM, [(rows, variable)])
        return total

    placed = _placed(vectors, replica, num_replicas)
    return tf.distribute.get_replica_context().merge_call(
        add_up, args=(placed, tf.trainable_variables()[0]))  # the variable stands for its devices


def _placed(vectors: tf.Tensor, index: Index, count: int) -> tf.Tensor:
    """The vectors [b, w] as the part number `index` of `count`, among zeros [count * b, w]."""
    size = vectors.shape.as_list()[0]
    placed = tf.pad(vectors, [[index * size, (count - 1 - index) * size], [0, 0]])
    placed.set_shape([count * size, vectors.shape[1]])
    return placed

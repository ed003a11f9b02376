"""The exponential mean of the weights over the steps of a training (--ema_decay).

A checkpoint stores the mean under the weight's name, so that every reader of it uses the means. It
stores the weight itself as `<name>/as_trained`, from which a resumed run continues.
"""

from typing import Any, Dict, Mapping, Sequence

import tensorflow.compat.v1 as tf

from engine.checkpoints.checkpoints import AS_TRAINED

_SUFFIX = "/mean_of_steps"  # of the name of a mean in the graph


def follow(train_op: tf.Operation, weights: Sequence[tf.Variable], decay: float) -> tf.Operation:
    """Updates the weights' means after `train_op`, in a replica of any strategy.

    After step t from 1, mean = d * mean + (1 - d) * weight, with d the lower of `decay` and
    (t - 1) / (t + 8), so that the mean of a short training does not stay at its start.

    The means are on the first replica alone, since all have the same weights.
    """
    def follow_first(strategy: tf.distribute.Strategy, train_op) -> tf.Operation:
        first, *_ = strategy.experimental_local_results(tf.train.get_global_step())
        with tf.device(first.device), tf.control_dependencies(
                tf.nest.flatten(strategy.experimental_local_results(train_op))):
            step = tf.cast(first.read_value(), tf.float32)
            share = 1.0 - tf.minimum(decay, (step - 1.0) / (step + 8.0))
            return tf.group(*[_approach(strategy.experimental_local_results(weight)[0], share)
                              for weight in weights])

    return tf.distribute.get_replica_context().merge_call(follow_first, args=(train_op,))


def _approach(weight: tf.Variable, share: tf.Tensor) -> tf.Operation:
    with tf.name_scope(None), tf.control_dependencies(None):
        mean = type(weight)(tf.zeros(weight.shape), trainable=False,
                            name=weight.op.name + _SUFFIX)
    # A weight that does not move is its mean, bit for bit.
    return mean.assign_add(share * (weight.read_value() - mean.read_value())).op


def by_stored_name() -> Dict[str, tf.Variable]:
    """The variables of the graph by their names in checkpoints."""
    variables = {variable.op.name: variable for variable in tf.global_variables()}
    for name in [name for name in variables if name.endswith(_SUFFIX)]:
        weight = name[:-len(_SUFFIX)]
        variables[weight + AS_TRAINED] = variables.pop(weight)
        variables[weight] = variables.pop(name)
    return variables


def saveables(variables: Mapping[str, tf.Variable]) -> Dict[str, Any]:
    """The variables in a form for a Saver, which takes a mirrored one only under its own name."""
    def saveable(name: str, variable: tf.Variable) -> Any:
        found, = variable._gather_saveables_for_checkpoint().values()
        return found(name) if callable(found) else found
    return {name: saveable(name, variable) for name, variable in variables.items()}

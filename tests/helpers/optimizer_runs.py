"""A few steps of an optimizer on a few variables."""

import numpy as np

import optimization
from encoder import classifier
from engine.model import Outputs
from trainings import replica_of

import tensorflow.compat.v1 as tf

FLOAT16_ROUNDING = 2.0 ** -11  # relative


def overflowing(model, *, step: int):
    """A model whose second replica's loss has a huge gradient in one step, counted from 0.

    Its product with the loss scale is finite in float32, and more than float16 holds.
    """
    forward = classifier.forward_of(model.config(), 2)

    def overflow(features, mode):
        outputs = forward(features, mode)
        is_bad = tf.logical_and(tf.equal(replica_of(mode), 1),
                                tf.equal(tf.train.get_global_step(), step))
        factor = tf.where(is_bad, 1e7, 1.0)

        @tf.custom_gradient
        def steepened(loss):
            return tf.identity(loss), lambda gradient: gradient * factor
        return Outputs(steepened(outputs.loss), outputs.predictions)
    return overflow


INITIAL = {"dense/kernel": np.array([[0.5, -1.0], [2.0, 0.1]], np.float32),
           "dense/bias": np.array([0.3, -0.2], np.float32),
           "LayerNorm/gamma": np.array([1.0, 1.5], np.float32)}


def gradients_of_steps(steps: int, scale: float = 1.0):
    random = np.random.RandomState(0)
    return [{name: (scale * random.randn(*value.shape)).astype(np.float32)
             for name, value in INITIAL.items()} for _ in range(steps)]


def run_optimizer(steps, make_optimizer, *, use_resource=True, global_step=False):
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.get_variable(name, initializer=tf.constant(value),
                                     use_resource=use_resource)
                     for name, value in INITIAL.items()]
        fed = [tf.placeholder(tf.float32, value.shape) for value in INITIAL.values()]
        step = tf.train.get_or_create_global_step()
        train_op = make_optimizer().apply_gradients(
            list(zip(fed, variables)), global_step=step)
        session.run(tf.global_variables_initializer())
        for gradients in steps:
            session.run(train_op, dict(zip(fed, gradients.values())))
        values = {variable.op.name: session.run(variable) for variable in tf.global_variables()}
        count = values.pop("global_step")
        return (values, count) if global_step else values


DECAY, EPSILON = 0.1, 1e-6


def optimizer(kind, **options):
    return lambda: optimization.OPTIMIZERS[kind](
        0.01, weight_decay_rate=DECAY, exclude_from_weight_decay=["LayerNorm", "bias"],
        clip_norm=1.0, **options)

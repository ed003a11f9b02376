"""A few steps of an optimizer on a few variables."""

import numpy as np

import optimization
from conftest import checkpoint_values
from encoder import classifier
from engine.model import Outputs
from trainings import STEPS, recorded, settings, train

import tensorflow.compat.v1 as tf

FLOAT16_ROUNDING = 2.0 ** -11  # relative


def plain_and_narrow(precision, tolerance, model, source, tmp_path, monkeypatch):
    """What two trainings end with, which are alike but for the rounding of their products."""
    losses, _ = recorded(monkeypatch)
    plain, narrow = (train(model, source, 1, settings(
        tmp_path / name, 16, learning_rate=1e-3, precision=name)) for name in ("tf32", precision))
    assert losses[STEPS - 1] < losses[0] - 0.05, "a training that learns nothing proves nothing"
    np.testing.assert_allclose(losses[STEPS:], losses[:STEPS], rtol=tolerance)
    assert np.abs(np.subtract(losses[STEPS:], losses[:STEPS])).max() > 1e-6
    assert all(narrow[name].dtype == value.dtype for name, value in plain.items())
    return plain, narrow


def assert_alike(runs, losses, norms, model, rounding, times=1):
    """Each run is like the first, but for so many roundings: its losses, and how values move."""
    initial = checkpoint_values(model.init_checkpoint)
    for index, run in enumerate(runs[1:], 1):
        part = slice(index * STEPS, (index + 1) * STEPS)
        np.testing.assert_allclose(losses[part], losses[:STEPS], rtol=times * rounding)
        np.testing.assert_allclose(norms[part], norms[:STEPS], rtol=10 * rounding)
        for name in initial:
            if "key/bias" in name:
                continue  # it has only noise for a gradient
            difference = np.linalg.norm(run[name] - runs[0][name])
            moved = np.linalg.norm(runs[0][name] - initial[name])
            assert difference < 10 * times * rounding * moved, name


def overflowing(model, *, step: int):
    """A model whose second replica's loss has a huge gradient in one step, counted from 0.

    Its product with the loss scale is finite in float32, and more than float16 holds.
    """
    forward = classifier.forward_of(model.config(), 2)

    def overflow(features, mode):
        outputs = forward(features, mode)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        is_bad = tf.logical_and(tf.equal(tf.cast(replica, tf.int32), 1),
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

"""The optimizer in a user's own program: each way to call it, on any number of replicas.

All of them end like one replica that takes the whole batch, without a strategy.
"""

from typing import Dict, List, NamedTuple

import numpy as np
import pytest

import multigpu_optimizer
import optimization
from conftest import assert_same_training, checkpoint_values, cpu_devices, on_tensorflow_1

import tensorflow.compat.v1 as tf

BATCH, STEPS = 16, 5
RANDOM = np.random.RandomState(0)
INPUTS = RANDOM.randn(BATCH, 4).astype(np.float32)
TARGETS = RANDOM.randn(BATCH, 3).astype(np.float32)
KERNEL = RANDOM.randn(4, 3).astype(np.float32)
LOSS_FACTOR = 0.45  # for gradients with a norm of about 1.7, which are clipped


def optimizer(clip_norm=optimization.CLIP_NORM, **options):
    """The optimizer that `optimization.create_optimizer` makes, but for the schedule."""
    return multigpu_optimizer.AdamWeightDecayOptimizer(
        1e-3, weight_decay_rate=optimization.WEIGHT_DECAY_RATE, clip_norm=clip_norm,
        exclude_from_weight_decay=optimization.EXCLUDE_FROM_WEIGHT_DECAY, **options)


def by_tf_gradients(loss_of, made):
    variables = tf.trainable_variables()
    return made.apply_gradients(zip(tf.gradients(loss_of(slice(None)), variables), variables),
                                tf.train.get_global_step())


def by_compute_gradients(loss_of, made):
    return made.apply_gradients(made.compute_gradients(loss_of(slice(None))),
                                tf.train.get_global_step())


def by_minimize(loss_of, made):
    return made.minimize(loss_of(slice(None)), tf.train.get_global_step())


def by_minimize_of_a_function(loss_of, made):
    return made.minimize(lambda: loss_of(slice(None)), tf.train.get_global_step(),
                         tf.trainable_variables())


def by_two_micro_batches(loss_of, made):
    halves = [made.compute_gradients(loss_of(slice(start, None, 2))) for start in (0, 1)]
    means = [((first + second) / 2, variable)
             for (first, variable), (second, _) in zip(*halves) if first is not None]
    return made.apply_gradients(means, tf.train.get_global_step())


def by_create_optimizer(loss_of, _):
    # So long a schedule that the learning rate stays as it is.
    return optimization.create_optimizer(loss_of(slice(None)), 1e-3, 10**7, 0)


WAYS = (by_tf_gradients, by_compute_gradients, by_minimize, by_minimize_of_a_function,
        by_two_micro_batches, by_create_optimizer)


def model(features, labels):
    """From rows of a replica's examples to their mean loss."""
    kernel = tf.get_variable("dense/kernel", initializer=KERNEL, use_resource=True)
    bias = tf.get_variable("dense/bias", initializer=np.zeros(3, np.float32), use_resource=True)

    def loss_of(rows):
        outputs = tf.matmul(features[rows], kernel) + bias
        return tf.losses.mean_squared_error(labels[rows], outputs, LOSS_FACTOR)
    return loss_of


class Training(NamedTuple):
    values: Dict[str, Dict[str, np.ndarray]]  # by the way's name: of its variables, at the end
    global_step: int
    losses: List[float]  # that the Estimator reports
    norms: List[List[float]]  # step by step, of each way's gradients before clipping


class Recorder(tf.train.SessionRunHook):
    """Collects the loss and the gradients' norms of STEPS steps, and ends the training."""

    def __init__(self):
        self.losses, self.norms = [], []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs((tf.get_collection(tf.GraphKeys.LOSSES)[-1],
                                        tf.get_collection(multigpu_optimizer.GRADIENT_NORM)))

    def after_run(self, run_context, run_values):
        loss, norms = run_values.results
        self.losses.append(loss)
        self.norms.append(norms)
        if len(self.losses) == STEPS:
            run_context.request_stop()


def train(directory, ways, num_replicas=None, **options) -> Training:
    """A training with an Estimator of a model for each way; `num_replicas` None: no strategy."""
    def model_fn(features, labels, mode):
        losses, train_ops = [], []
        for way in ways:
            with tf.variable_scope(way.__name__):
                loss_of = model(features, labels)
                losses.append(loss_of(slice(None)))
                with tf.control_dependencies(losses):  # what is reported is read before the update
                    train_ops.append(way(loss_of, optimizer(**options)))
        return tf.estimator.EstimatorSpec(mode, loss=losses[0], train_op=tf.group(*train_ops))

    def input_fn():
        per_replica = BATCH // (num_replicas or 1)
        return tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(per_replica).repeat()

    devices = cpu_devices(num_replicas or 1)
    recorder = Recorder()
    estimator = tf.estimator.Estimator(model_fn, str(directory), tf.estimator.RunConfig(
        train_distribute=devices.strategy() if num_replicas else None,
        session_config=devices.session_config))
    estimator.train(input_fn, hooks=[recorder])
    values = checkpoint_values(str(directory))
    return Training({way.__name__: values_in(way.__name__, values) for way in ways},
                    values["global_step"], recorder.losses, recorder.norms)


def values_in(scope, values):
    return {name[len(scope) + 1:]: value for name, value in values.items()
            if name.startswith(scope + "/")}


@pytest.fixture(scope="module")
def of_one_replica(tmp_path_factory):
    """The training that all others are compared with."""
    return train(tmp_path_factory.mktemp("one"), [by_tf_gradients])


@pytest.mark.parametrize("num_replicas", [pytest.param(None, marks=on_tensorflow_1), 2])
def test_every_way_on_any_number_of_replicas_steps_like_one_replica_with_the_whole_batch(
        num_replicas, of_one_replica, tmp_path):
    expected = of_one_replica
    assert all(1 < norm < 2 for norm, in expected.norms)
    actual = train(tmp_path, WAYS, num_replicas)
    assert actual.global_step == STEPS * len(WAYS)  # each of them adds one
    np.testing.assert_allclose(actual.losses, expected.losses, rtol=1e-5)
    assert sorted(actual.values[by_minimize.__name__]) == [
        "dense/bias", "dense/bias/adam_m", "dense/bias/adam_v",
        "dense/kernel", "dense/kernel/adam_m", "dense/kernel/adam_v"]
    for index, way in enumerate(WAYS):
        np.testing.assert_allclose([norms[index] for norms in actual.norms],
                                   [norm for norm, in expected.norms], 1e-5, err_msg=way.__name__)
        assert_same_training(expected.values[by_tf_gradients.__name__],
                             actual.values[way.__name__])


def test_minimize_in_a_function_that_a_strategy_runs_is_the_same(of_one_replica):
    """Outside of an Estimator, where TensorFlow does not divide the loss."""
    def train_op():
        tf.train.get_or_create_global_step()
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        rows = replica * (BATCH // 2) + tf.range(BATCH // 2)
        return by_minimize(model(tf.gather(INPUTS, rows), tf.gather(TARGETS, rows)),
                           optimizer())

    strategy = cpu_devices(2).strategy()
    with strategy.scope():
        run = getattr(strategy, "run", None) or strategy.experimental_run_v2  # its name in TensorFlow 1
        step = strategy.experimental_local_results(run(train_op))
    with tf.Session(config=cpu_devices(2).session_config) as session:
        session.run(tf.global_variables_initializer())
        session.run([tf.local_variables_initializer(), tf.tables_initializer()])
        for _ in range(STEPS):
            session.run(step)
        actual = {variable.op.name: session.run(variable) for variable in tf.global_variables()
                  if "/replica" not in variable.op.name}
    assert actual.pop("global_step") == STEPS
    assert_same_training(of_one_replica.values[by_tf_gradients.__name__], actual)


def in_every_second_step(loss_of, made):
    is_second = tf.equal(tf.train.get_global_step() % 2, 1)
    return tf.cond(is_second, lambda: by_minimize(loss_of, made), tf.no_op)


def test_an_update_in_tf_cond_of_several_replicas_is_refused(tmp_path):
    with pytest.raises(ValueError, match="tf.cond.* call it in every step"):
        train(tmp_path, [in_every_second_step], num_replicas=2)


def test_an_update_outside_of_the_replicas_is_refused():
    with cpu_devices(2).strategy().scope():
        variable = tf.get_variable("w", [2])
        with pytest.raises(ValueError, match="outside of the replicas"):
            optimizer().apply_gradients([(tf.ones([2]), variable)])

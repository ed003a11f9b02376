"""The optimizer and the schedule against NumPy and against Google's code."""

import numpy as np
import pytest

import multigpu_optimizer
import optimization
from conftest import assert_same_training, checkpoint_values
from optimizer_runs import INITIAL, gradients_of_steps, run_optimizer
from trainings import settings, train

import tensorflow.compat.v1 as tf


def test_googles_semantics_leave_global_step_to_the_caller():
    values, count = run_optimizer(
        gradients_of_steps(2), lambda: optimization.AdamWeightDecayOptimizer(0.01),
        global_step=True)
    assert count == 0
    assert np.abs(values["dense/kernel"] - INITIAL["dense/kernel"]).max() > 1e-3


def test_no_gradient_at_all_is_an_error():
    variable = tf.get_variable("w", [2])
    with pytest.raises(ValueError, match="No variable has a gradient"):
        multigpu_optimizer.AdamWeightDecayOptimizer(0.1).apply_gradients([(None, variable)])


@pytest.mark.parametrize("schedule, min_lr_ratio, expected", (
    ("linear", 0.0, (0, 5e-4, 9e-4, 7.5e-4, 5e-4, 2.5e-4, 0, 0)),
    ("linear", 0.1, (0, 5e-4, 9.1e-4, 7.75e-4, 5.5e-4, 3.25e-4, 1e-4, 1e-4)),
    # 1 + cos(18°) = 1.951057, 1 + cos(45°) = 1.707107, 1 + cos(135°) = 0.292893
    ("cosine", 0.0, (0, 5e-4, 9.755283e-4, 8.535534e-4, 5e-4, 1.464466e-4, 0, 0)),
    ("cosine", 0.2, (0, 5e-4, 9.804226e-4, 8.828427e-4, 6e-4, 3.171573e-4, 2e-4, 2e-4)),
    ("constant", 0.0, (0, 5e-4, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3))))
def test_each_schedule_has_the_rates_worked_out_by_hand(schedule, min_lr_ratio, expected):
    """A peak of 1e-3, 100 steps, 10 of them warm-up."""
    step = tf.placeholder(tf.int64, [])
    rate = optimization.learning_rate_at(
        step, 1e-3, 100, 10, schedule=schedule, min_lr_ratio=min_lr_ratio)
    with tf.Session() as session:
        rates = [session.run(rate, {step: value}) for value in (0, 5, 10, 25, 50, 75, 100, 150)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-10)


def test_tpus_are_refused():
    with pytest.raises(ValueError, match="use_tpu"):
        optimization.create_optimizer(tf.constant(1.0), 0.1, 10, 0, True)


def one_step_graph(create_optimizer, steps: int):
    """A small net in reference variables, trained by a `create_optimizer`."""
    random = np.random.RandomState(1)
    inputs = random.randn(8, 4).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.get_or_create_global_step()
        kernel = tf.get_variable("dense/kernel", initializer=random.randn(4, 3).astype(np.float32))
        bias = tf.get_variable("dense/bias", initializer=np.zeros(3, np.float32))
        loss = 50 * tf.reduce_mean(tf.square(tf.matmul(inputs, kernel) + bias - 1.0))
        # So long a schedule that reading global_step before or after it advances, which
        # Google's code leaves open, makes no difference.
        train_op = create_optimizer(loss, 1e-3, 10**7, 0, False)
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        return {variable.op.name: session.run(variable) for variable in tf.global_variables()}


def test_create_optimizer_steps_like_googles():
    theirs = pytest.importorskip("bert.optimization")
    expected = one_step_graph(theirs.create_optimizer, 10)
    actual = one_step_graph(optimization.create_optimizer, 10)
    assert actual["global_step"] == 10
    assert_same_training(expected, actual)


def test_a_training_with_a_huge_epsilon_only_decays_its_weights(tiny_model, source, tmp_path):
    values = train(tiny_model, source, 1, settings(
        tmp_path, 8, num_train_steps=2, warmup_steps=0, learning_rate=0.1, adam_epsilon=1e9))
    name = "bert/encoder/layer_0/output/dense/kernel"
    before = checkpoint_values(tiny_model.init_checkpoint)[name]
    # The rate falls from 0.1 to 0.05, and a weight loses 0.01 of itself times the rate.
    np.testing.assert_allclose(values[name], before * (1 - 1e-3) * (1 - 5e-4), rtol=1e-6)

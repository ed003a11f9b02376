"""A pooled loss is the same over replicas, machines and micro-batches."""

import json

import numpy as np
import pytest

import pools
from conftest import assert_same_training, checkpoint_values
from engine.data.plan import TrainingPlan
from engine.model import Mode
from pools import GLOBAL_BATCH
from trainings import recorded
from workers import start_command

import tensorflow.compat.v1 as tf

LAYOUTS = [(1, 1), (4, 1), (2, 2)]  # replicas, micro-batches
SEED = 7
DROPOUT = 0.3


@pytest.fixture(scope="module")
def initial(tmp_path_factory):
    """The weights that a training starts from."""
    folder = tmp_path_factory.mktemp("initial")
    pools.train(folder, 1, num_train_steps=1, learning_rate=1e-12)
    return checkpoint_values(str(folder))


@pytest.fixture(scope="module")
def indices():
    """The examples of the first step. Some share a positive."""
    chosen = TrainingPlan(pools.source().lengths, GLOBAL_BATCH, SEED).global_batch(0)
    positives = pools.keys_of(pools.ids_of_examples())[chosen, 1]
    assert len(np.unique(positives)) < GLOBAL_BATCH
    return chosen


def assert_first_step(values, losses, norms, expected):
    """Compares the loss and the moments, a tenth of the clipped gradients."""
    np.testing.assert_allclose(losses[0], expected.loss, rtol=1e-5)
    for name in ("words", "kernel"):
        moment = getattr(expected, name) * 0.1 / max(1.0, norms[0])
        np.testing.assert_allclose(values[f"{name}/adam_m"], moment, atol=1e-6)
        assert np.abs(moment).max() > 1e-3


@pytest.mark.parametrize("replicas, micro_batches", LAYOUTS)
def test_the_gradient_is_that_of_the_loss_of_all_anchors_and_all_candidates(
        replicas, micro_batches, initial, indices, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    pools.train(tmp_path, replicas, micro_batches, num_train_steps=1, warmup_steps=0)
    expected = pools.in_numpy(initial["words"], initial["kernel"], indices)
    assert_first_step(checkpoint_values(str(tmp_path)), losses, norms, expected)


def with_masks_of(replicas, micro_batches, initial, indices) -> pools.Expected:
    """The gradient of the loss in one graph, with the masks of each part of a layout."""
    forward, source = pools.forward_of(DROPOUT), pools.source()
    parts, size = replicas * micro_batches, GLOBAL_BATCH // replicas // micro_batches
    with tf.Graph().as_default(), tf.Session() as session:
        rows = []
        for part in range(parts):
            features = source.fetch(indices[part * size:][:size], pools.LENGTH)
            replica, micro_batch = divmod(part, micro_batches)
            seed = tf.constant([SEED * 2**20 + replica, micro_batch * 2**40], tf.int64)
            with tf.variable_scope(tf.get_variable_scope(), reuse=part > 0):
                rows.append(forward(dict(zip(features, map(tf.constant, features.values()))),
                                    Mode(True, seed)).pooled.vectors)
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        loss = pools.loss(tf.concat(rows, 0))
        gradients = tf.gradients(loss, [variables["words"], variables["kernel"]])
        for name, variable in variables.items():
            variable.load(initial[name], session)
        return pools.Expected(*session.run([loss, *map(tf.convert_to_tensor, gradients)]))


def test_with_dropout_the_gradient_is_that_of_the_same_masks(initial, indices, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    pools.train(tmp_path, 2, 4, dropout=DROPOUT, num_train_steps=1, warmup_steps=0)
    expected = with_masks_of(2, 4, initial, indices)
    assert_first_step(checkpoint_values(str(tmp_path)), losses, norms, expected)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The values after 20 steps of one replica."""
    folder = tmp_path_factory.mktemp("alone")
    pools.train(folder, 1, learning_rate=1e-3)
    return checkpoint_values(str(folder))


@pytest.mark.parametrize("replicas, micro_batches", [(4, 1), (2, 4)])
def test_a_training_ends_with_the_same_variables(replicas, micro_batches, alone, initial, tmp_path):
    pools.train(tmp_path, replicas, micro_batches, learning_rate=1e-3)
    values = checkpoint_values(str(tmp_path))
    assert_same_training(alone, values)
    assert np.abs(values["kernel"] - initial["kernel"]).max() > 1e-3


def test_two_processes_with_two_replicas_train_as_one(alone, tmp_path):
    arguments = json.dumps([str(tmp_path / "out")])
    started = start_command(tmp_path, ["-m", "tests.helpers.toy_worker"], lambda index: dict(
        call="train_on_a_pool", arguments=arguments))
    ended = [worker.end() for worker in started]
    assert [each.status for each in ended] == [0, 0], ended
    assert_same_training(alone, checkpoint_values(str(tmp_path / "out")))

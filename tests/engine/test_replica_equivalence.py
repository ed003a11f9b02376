"""N replicas x B examples step exactly like one replica x N * B: what the project is for."""


import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values
from encoder import classifier
from engine.data import batches
from engine.data.plan import TrainingPlan
from engine.model import Outputs
from trainings import STEPS, recorded, settings, train, train_in_two_parts, training_source

import tensorflow.compat.v1 as tf

@pytest.fixture(scope="module")
def tiny_model(two_layers):
    """The first layer computes all positions, the last one those that the classifier reads."""
    return two_layers


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


@pytest.fixture(scope="module")
def clipped(tiny_model):
    """A model whose loss is so large that clipping is active."""
    classify = classifier.forward_of(tiny_model.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        return Outputs(30 * outputs.loss, outputs.predictions)
    return forward


@pytest.fixture(scope="module")
def of_one_replica(tiny_model, source, clipped, tmp_path_factory):
    """The values, losses and gradient norms of 1 x 16."""
    with pytest.MonkeyPatch.context() as patch:
        losses, norms = recorded(patch)
        return train(tiny_model, source, 1, settings(tmp_path_factory.mktemp("whole"), 16),
                     forward=clipped), losses, norms


@pytest.mark.parametrize("num_replicas", (2, 4))
def test_1x16_2x8_and_4x4_end_with_the_same_variables_slots_step_and_loss(
        tiny_model, source, clipped, of_one_replica, num_replicas, tmp_path, monkeypatch):
    expected, expected_losses, norms = of_one_replica
    assert np.median(norms) > 1, "clipping must be active for this to mean anything"
    losses, _ = recorded(monkeypatch)
    values = train(tiny_model, source, num_replicas, settings(tmp_path, 16 // num_replicas),
                   forward=clipped)
    assert_same_training(expected, values)
    assert values["global_step"] == STEPS
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    initial = checkpoint_values(tiny_model.init_checkpoint)
    moved = np.abs(values["bert/pooler/dense/kernel"] - initial["bert/pooler/dense/kernel"])
    assert moved.max() > 1e-4, "a training that moves nothing proves nothing"


def test_the_replicas_of_a_step_share_one_global_batch_and_length(source):
    def batches_of(num_replicas):
        plan = TrainingPlan(source.lengths, 16, seed=7)
        dataset = batches.training_dataset(
            source, plan, replicas=range(num_replicas), per_replica_batch_size=16 // num_replicas,
            first_step=0, last_step=STEPS)
        batch, _ = tf.data.make_one_shot_iterator(dataset).get_next()
        with tf.Session() as session:
            parts = [session.run(batch["input_ids"]) for _ in range(STEPS * num_replicas)]
        return [np.concatenate(parts[i:i + num_replicas])
                for i in range(0, len(parts), num_replicas)]

    expected = batches_of(1)
    assert len({batch.shape[1] for batch in expected}) > 1, "lengths should vary"
    for num_replicas in (2, 4):
        for one, several in zip(expected, batches_of(num_replicas)):
            np.testing.assert_array_equal(one, several)


def test_what_4_replicas_began_one_replica_ends(
        tiny_model, source, clipped, of_one_replica, tmp_path, monkeypatch):
    resumed = train_in_two_parts(tiny_model, source, (4, 1), tmp_path, crash_step=8,
                                 monkeypatch=monkeypatch, forward=clipped)
    assert_same_training(of_one_replica[0], resumed)


def test_an_interrupted_run_with_dropout_ends_bit_for_bit_like_the_uninterrupted_one(
        tiny_model, source, tmp_path, monkeypatch):
    dropout = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    whole = train(tiny_model, source, 2, settings(tmp_path / "whole", 8), config_changes=dropout)
    resumed = train_in_two_parts(tiny_model, source, (2, 2), tmp_path / "parts", crash_step=7,
                                 monkeypatch=monkeypatch, config_changes=dropout)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)


def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing_on_any_replica(
        tiny_model, source, tmp_path, capsys):
    """One replica's gradient is NaN in step 3 (counted from 0): the step is skipped."""
    forward = classifier.forward_of(tiny_model.config(), 2)

    def poisoned(features, mode):
        outputs = forward(features, mode)
        context = tf.distribute.get_replica_context()
        is_bad = tf.logical_and(
            tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32), 1),
            tf.equal(tf.train.get_global_step(), 3))
        factor = tf.where(is_bad, float("nan"), 1.0)

        @tf.custom_gradient
        def poison(loss):
            return tf.identity(loss), lambda gradient: gradient * factor
        return Outputs(poison(outputs.loss), outputs.predictions)

    by_length = {}
    for steps in (3, 4):
        by_length[steps] = train(
            tiny_model, source, 2,
            settings(tmp_path / str(steps), 8, num_train_steps=steps), forward=poisoned)
    for name, value in by_length[3].items():
        if name == "global_step":
            assert (value, by_length[4][name]) == (3, 4)
        else:
            np.testing.assert_array_equal(value, by_length[4][name], err_msg=name)
    assert "skipped 1 step with gradients" in capsys.readouterr().err

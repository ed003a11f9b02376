"""A loss that is not a number: a skipped step in float16, the end of the training otherwise."""

import math

import numpy as np
import pytest

from conftest import checkpoint_values, on_tensorflow_2
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.model import Outputs
from engine.training import checkpoint_hook, summaries
from engine.workers.cluster import Cluster
from engine.workers.coordination import Peers
from trainings import recorded, settings, train, training_source

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


def losing(model, factor, *, step=3, replica=0):
    """A model whose loss on one replica is multiplied by `factor` in one step, counted from 0."""
    classify = classifier.forward_of(model.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        own = tf.distribute.get_replica_context().replica_id_in_sync_group
        is_bad = tf.logical_and(tf.equal(tf.cast(own, tf.int32), replica),
                                tf.equal(tf.train.get_global_step(), step))
        return Outputs(outputs.loss * tf.where(is_bad, factor, 1.0), outputs.predictions)
    return forward


@pytest.mark.parametrize("replicas, factor, changes", [
    (1, float("inf"), {}), (2, float("nan"), dict(gradient_accumulation_steps=2))])
def test_in_float32_it_ends_the_training_and_what_was_saved_before_stays(
        tiny_model, source, tmp_path, replicas, factor, changes):
    run_settings = settings(tmp_path, 4, num_train_steps=6, save_checkpoints_steps=2, **changes)
    with pytest.raises(UserError) as error:
        train(tiny_model, source, replicas, run_settings,
              forward=losing(tiny_model, factor, replica=replicas - 1))
    said = str(error.value)
    assert said.startswith(f"the loss of step 4 is {factor}") and "--learning_rate" in said
    assert said.endswith(f"{tmp_path} keeps step 2")
    assert checkpoints.latest(str(tmp_path)).global_step == 2
    assert max(step for step, _ in summaries.read_history(str(tmp_path))["loss"]) == 3
    # With what was wrong mended, the same run goes on from there.
    assert train(tiny_model, source, replicas, run_settings)["global_step"] == 6


def test_before_the_first_checkpoint_it_says_that_there_is_none(tiny_model, source, tmp_path):
    with pytest.raises(UserError, match="no checkpoint was saved before it"):
        train(tiny_model, source, 1, settings(tmp_path, 4, num_train_steps=6),
              forward=losing(tiny_model, float("nan"), step=0))


def test_another_worker_than_the_chief_does_not_say_what_is_kept(
        tiny_model, source, tmp_path):
    saver = checkpoint_hook.SaveHook(
        str(tmp_path), 1, 1, None, peers=Peers(Cluster(("a:2222", "b:2222"), 1)))
    assert saver.kept() == "worker 0 (a:2222) has the checkpoints"


@on_tensorflow_2
def test_in_float16_the_step_is_skipped_and_counted(
        tiny_model, source, tmp_path, monkeypatch, capsys):
    """It was on one of two replicas."""
    losses, _ = recorded(monkeypatch)

    def run(steps):
        return train(tiny_model, source, 2, settings(
            tmp_path / str(steps), 4, num_train_steps=steps, precision="float16",
            gradient_accumulation_steps=2), forward=losing(tiny_model, float("nan"), replica=1))
    before, after = run(3), run(4)
    assert "skipped 1 step with gradients" in capsys.readouterr().err
    assert math.isnan(losses[-1]) and np.isfinite(losses[:-1]).all()
    for name in checkpoint_values(tiny_model.init_checkpoint):
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    assert (before["global_step"], after["global_step"]) == (3, 4)

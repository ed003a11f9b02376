"""A loss that is not a number ends the training, but in float16, where the step is skipped."""

import pytest

from encoder import classifier
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.model import Outputs
from engine.training import summaries
from trainings import replica_of, settings, train

import tensorflow.compat.v1 as tf


def losing(model, factor, *, step=3, replica=0):
    """A model whose loss on one replica is multiplied by `factor` in one step, counted from 0."""
    classify = classifier.forward_of(model.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        is_bad = tf.logical_and(tf.equal(replica_of(mode), replica),
                                tf.equal(tf.train.get_global_step(), step))
        return Outputs(outputs.loss * tf.where(is_bad, factor, 1.0), outputs.predictions)
    return forward


@pytest.mark.parametrize("replicas, factor", [(1, float("inf")), (2, float("nan"))])
def test_in_float32_it_ends_the_training_and_what_was_saved_before_stays(
        tiny_model, source, tmp_path, replicas, factor):
    with pytest.raises(UserError) as error:
        train(tiny_model, source, replicas,
              settings(tmp_path, 4, num_train_steps=6, save_checkpoints_steps=2),
              forward=losing(tiny_model, factor, replica=replicas - 1))
    said = str(error.value)
    assert said.startswith(f"the loss of step 4 is {factor}") and "--learning_rate" in said
    assert said.endswith(f"{tmp_path} keeps step 2")
    assert checkpoints.latest(str(tmp_path)).global_step == 2
    assert max(step for step, _ in summaries.read_history(str(tmp_path))["loss"]) == 3


def test_before_the_first_checkpoint_it_says_that_there_is_none(tiny_model, source, tmp_path):
    with pytest.raises(UserError, match="no checkpoint was saved before it"):
        train(tiny_model, source, 1, settings(tmp_path, 4, num_train_steps=6),
              forward=losing(tiny_model, float("nan"), step=0))

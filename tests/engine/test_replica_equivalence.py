"""N replicas x k micro-batches x B examples step like one replica with N * k * B."""

import re

import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values, on_tensorflow_1, on_tensorflow_2
from encoder import classifier
from engine.data import batches
from engine.errors import UserError
from engine.model import Outputs
from engine.training.step_hook import StepHook
from trainings import STEPS, crash_after, recorded, settings, train

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def clipped(two_layers):
    """A model whose loss is so large that clipping is active."""
    classify = classifier.forward_of(two_layers.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        return Outputs(30 * outputs.loss, outputs.predictions)
    return forward


@pytest.fixture(scope="module")
def corrected(request):
    """The settings of trainings without and with bias correction."""
    return dict(adam_bias_correction=request.param)


@pytest.fixture(scope="module")
def of_one_replica(two_layers, source, clipped, corrected, tmp_path_factory):
    """The values, losses and gradient norms of 1 x 16."""
    with pytest.MonkeyPatch.context() as patch:
        losses, norms = recorded(patch)
        whole = settings(tmp_path_factory.mktemp("whole"), 16, **corrected)
        return train(two_layers, source, 1, whole, forward=clipped), losses, norms


@pytest.mark.parametrize("corrected, num_replicas, micro_batches", [
    *(pytest.param(False, *layout, marks=on_tensorflow_1) for layout in ((4, 1), (2, 2))),
    *(pytest.param(True, *layout, marks=on_tensorflow_2) for layout in ((1, 4), (2, 2)))],
                         indirect=["corrected"], scope="module")
def test_the_same_global_batch_ends_with_the_same_variables_slots_step_and_loss(
        two_layers, source, clipped, of_one_replica, corrected, num_replicas, micro_batches,
        tmp_path, monkeypatch):
    expected, expected_losses, expected_norms = of_one_replica
    assert np.median(expected_norms) > 1, "clipping must be active for this to mean anything"
    losses, norms = recorded(monkeypatch)
    values = train(two_layers, source, num_replicas, settings(
        tmp_path, 16 // num_replicas // micro_batches, gradient_accumulation_steps=micro_batches,
        **corrected), forward=clipped)
    assert_same_training(expected, values)
    assert values["global_step"] == STEPS
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-4)
    initial = checkpoint_values(two_layers.init_checkpoint)
    moved = np.abs(values["bert/pooler/dense/kernel"] - initial["bert/pooler/dense/kernel"])
    assert moved.max() > 1e-4, "a training that moves nothing proves nothing"


def test_a_variable_of_another_replica_is_one_node(two_layers, source, tmp_path):
    """TensorFlow's own are five, and two more for resuming; of 8 replicas they took half of the start."""
    types = []

    class Built(Exception):
        pass

    def read(hook):
        types.extend(op.type for op in tf.get_default_graph().get_operations()
                     if re.search("/replica_1(/|$)", op.name))
        raise Built

    with pytest.raises(Built), pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepHook, "begin", read)  # after the saver is made
        train(two_layers, source, 2, settings(tmp_path, 8))
    assert types == ["VarHandleOp"] * len(types)
    assert len(types) == len(checkpoint_values(two_layers.init_checkpoint)) + 3  # output layer, step


def test_a_run_without_bias_correction_is_not_resumed_with_it(tiny_model, source, tmp_path):
    with crash_after(8):
        train(tiny_model, source, 1, settings(tmp_path, 8, save_checkpoints_steps=8))
    with pytest.raises(UserError, match=r"\(step 8\) has no number of updates, .*without --adam_bias_correction, or start "):
        train(tiny_model, source, 1, settings(tmp_path, 8, adam_bias_correction=True))


def test_micro_batches_and_steps_drop_different_values_and_runs_of_a_seed_the_same(
        tiny_model, source, tmp_path):
    """All batches hold the same example, so that all differences come from dropout."""
    same = batches.Source(
        lengths=source.lengths[:1].repeat(64), max_length=source.max_length,
        fetch=lambda indices, length: source.fetch(np.zeros(len(indices), np.int64), length))
    seen = []
    classify = classifier.forward_of(tiny_model.config(hidden_dropout_prob=0.2), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        logits = outputs.predictions["logits"]
        note = tf.numpy_function(lambda values: seen.append(values) or np.float32(0),
                                 [logits[0]], tf.float32)
        return Outputs(outputs.loss + tf.stop_gradient(tf.ensure_shape(note, [])),
                       outputs.predictions)

    def run(name):
        seen.clear()
        values = train(tiny_model, same, 2, settings(
            tmp_path / name, 2, gradient_accumulation_steps=3, num_train_steps=2,
            learning_rate=1e-12), forward=forward)
        return values, np.array(sorted(map(tuple, seen)))

    values, logits = run("once")
    assert logits.shape == (2 * 3 * 2, 2)
    assert len(np.unique(logits.round(6), axis=0)) == len(logits), "each mask is another"
    again, same_logits = run("again")
    np.testing.assert_array_equal(logits, same_logits)
    np.testing.assert_equal(values, again)

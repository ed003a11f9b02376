"""Class weights: the mean is over weights of the global batch, however it is divided."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from commands import ends_with_error, run_here
from conftest import assert_same_training, plain_session, write_cola
from encoder import classifier
from engine.data.batches import Source
from engine.errors import UserError
from engine.model import INFERENCE
from runs import class_weights
from runs.label_types import MultiLabel, Regression, SingleLabel
from trainings import settings, train, training_source

import tensorflow.compat.v1 as tf

KIND = SingleLabel(["no", "yes", "so"])
STEPS = 6


def test_balanced_weights_are_scikit_learns():
    labels = np.array([0] * 90 + [1] * 7 + [2] * 3)
    np.testing.assert_allclose(
        class_weights.of_classes("balanced", KIND, labels),
        compute_class_weight("balanced", classes=[0, 1, 2], y=labels), rtol=1e-6)
    # A class without examples does not matter.
    assert class_weights.of_classes("balanced", KIND, labels[:97])[2] == 1


def test_weights_that_are_given():
    labels = np.array([0, 1, 2])
    weights = class_weights.of_classes("yes=2.5, so=0.5", KIND, labels)
    assert weights.tolist() == [1, 2.5, 0.5]
    assert class_weights.of_labels(weights, labels[::-1]).tolist() == [0.5, 2.5, 1]


def test_several_labels_weigh_where_they_are():
    kind = MultiLabel(["a", "b"], ",")
    labels = np.array([[1, 0], [1, 1], [1, 0], [0, 0]], np.float32)
    weights = class_weights.of_classes("balanced", kind, labels)
    np.testing.assert_allclose(weights, [1 / 3, 3])
    found = class_weights.of_labels(weights, labels)
    np.testing.assert_allclose(found, [[1 / 3, 1], [1 / 3, 3], [1 / 3, 1], [1, 1]])
    for label in (0, 1):  # those with it and those without weigh the same
        has = labels[:, label] > 0
        assert found[has, label].sum() == pytest.approx(found[~has, label].sum())


@pytest.mark.parametrize("text, message", [
    ("maybe=2", "'maybe=2' is not label=weight"), ("yes", "'yes' is not label=weight"),
    ("yes=2,yes=3", "the label 'yes' is there twice"), ("yes=0", "'0' is not a number from"),
    ("yes=nan", "'nan' is not a number"), ("yes=two", "'two' is not a number")])
def test_weights_that_mean_nothing_are_refused(text, message):
    with pytest.raises(UserError, match=f"--class_weights={text}: {message}"):
        class_weights.parse(text, KIND)


def test_numbers_have_no_classes():
    with pytest.raises(UserError, match="are numbers, not classes"):
        class_weights.parse("balanced", Regression())


@pytest.mark.parametrize("labels", [
    np.array([0, 1, 1, 0]), np.array([[0, 1], [1, 1], [0, 0], [1, 0]], np.float32)])
def test_the_loss_is_the_weighted_mean(labels, tiny_model):
    weights = class_weights.of_labels(np.array([1, 5], np.float32), labels)
    fetch = class_weights.weighted(
        Source(np.full(4, 6), lambda indices, length: {"label_ids": labels[indices]}, 6),
        lambda indices: weights[indices]).fetch_for_step
    step = fetch(np.arange(4), np.zeros(4), 6)
    ids = tf.constant(np.arange(24).reshape(4, 6) % 20 + 5, tf.int32)
    outputs = classifier.forward_of(tiny_model.config(), 2)(
        {"input_ids": ids, "input_mask": tf.ones_like(ids),
         **{name: tf.constant(value) for name, value in step.items()}},
        INFERENCE)
    with plain_session() as session:
        session.run(tf.global_variables_initializer())
        loss, logits = session.run([outputs.loss, outputs.predictions["logits"]])
    if labels.ndim == 1:
        losses = SingleLabel(["a", "b"]).losses(logits, labels)
    else:
        losses = np.logaddexp(0, np.where(labels > 0, -logits, logits))
    assert loss == pytest.approx((weights * losses).sum() / weights.sum(), rel=1e-5)


def test_n_replicas_and_micro_batches_step_like_one_batch(tiny_model, tmp_path):
    source = training_source(tiny_model, tmp_path)
    labels = source.fetch(np.arange(len(source.lengths)), 16)["label_ids"]
    weights = np.where(labels > 0, 8.0, 0.5).astype(np.float32)
    rare = []  # of each step, in each of its micro-batches

    def weights_of(indices):
        rare.append(labels[indices].reshape(4, 4).sum(axis=1))
        return weights[indices]

    weighted = class_weights.weighted(source, weights_of)
    one, parts = (
        train(tiny_model, weighted, num_replicas,
              settings(tmp_path / str(num_replicas), size, num_train_steps=STEPS,
                       gradient_accumulation_steps=micro_batches))
        for num_replicas, size, micro_batches in [(1, 16, 1), (2, 4, 2)])
    assert_same_training(one, parts)
    assert all(len(set(of_step)) > 1 for of_step in rare), "the parts of a step should differ"


def test_a_label_that_the_task_does_not_have_ends_the_command(tiny_model, tmp_path, capsys):
    flags = dict(tiny_model._asdict(), task_name="cola", do_train=True, output_dir=tmp_path / "out",
                 data_dir=write_cola(tmp_path / "cola", train=24), class_weights="2=3")
    with ends_with_error(capsys, "--class_weights=2=3: '2=3' is not label=weight"):
        run_here(flags)
    assert not (tmp_path / "out").exists()

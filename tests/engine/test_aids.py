"""Aids for training on little data: frozen and redrawn layers, smoothed labels, the mean of the weights."""

import numpy as np
import pytest

import optimization
from commands import ends_with_error, run_here
from conftest import assert_same_training, checkpoint_values, write_cola
from encoder import classifier
from trainings import crash_after, settings, train

import tensorflow.compat.v1 as tf

NAME = "bert/encoder/layer_0/output/dense/kernel"
FROZEN = {"freeze_layers=1": (dict(freeze_layers=1), ("bert/embeddings/", "/layer_0/")),
          "freeze_embeddings": (dict(freeze_embeddings=True), ("bert/embeddings/",)),
          "freeze_layers=2": (dict(freeze_layers=2), ("bert/embeddings/", "/layer_"))}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_weights_keep_every_byte_and_have_no_slots_and_replicas_step_alike(
        name, two_layers, source, tmp_path):
    changes, parts = FROZEN[name]
    initial = checkpoint_values(two_layers.init_checkpoint)
    values = train(two_layers, source, 2, settings(tmp_path / "2", 8, num_train_steps=6, **changes))
    for parameter, value in initial.items():
        is_frozen = any(part in parameter for part in parts)
        assert (values[parameter].tobytes() == value.tobytes()) == is_frozen, parameter
        assert (f"{parameter}/adam_m" in values) != is_frozen
    assert_same_training(train(two_layers, source, 1, settings(tmp_path / "1", 16, num_train_steps=6,
                                                          **changes)), values)


def test_nothing_is_computed_backward_or_exchanged_below_the_frozen_layers(
        two_layers, source, tmp_path, monkeypatch):
    steps, create_train_op = [], optimization.create_train_op

    def create(gradients, *args, **kwargs):
        calls = [op for op in tf.get_default_graph().get_operations()
                 if op.type.endswith("PartitionedCall")]
        steps.append((len(calls), {variable.op.name for _, variable in gradients}))
        return create_train_op(gradients, *args, **kwargs)
    monkeypatch.setattr(optimization, "create_train_op", create)
    for name, changes in {"all": {}, "some": dict(freeze_layers=1)}.items():
        train(two_layers, source, 1, settings(tmp_path / name, 16, num_train_steps=1, **changes))
    (all_calls, _), (calls, exchanged) = steps
    assert calls == all_calls - 2  # of the embeddings' normalization and of layer_0
    assert not [name for name in exchanged if "embeddings" in name or "layer_0" in name]


def test_the_top_layers_and_the_pooler_are_drawn_by_the_seed_alone(
        two_layers, source, tmp_path, capsys):
    def initial(name, num_replicas, **changes):
        return train(two_layers, source, num_replicas, settings(
            tmp_path / name, 16 // num_replicas, num_train_steps=1, learning_rate=1e-12,
            reinit_layers=1, **changes))

    loaded, drawn = checkpoint_values(two_layers.init_checkpoint), initial("1", 1)
    again, other = initial("2", 2), initial("other", 1, seed=8)
    for name, value in loaded.items():
        is_drawn = "/layer_1/" in name or "pooler" in name
        is_constant = name.endswith(("bias", "beta", "gamma"))
        np.testing.assert_allclose(drawn[name], again[name], atol=1e-9, err_msg=name)
        for found in (drawn, other):
            assert np.allclose(found[name], value, atol=1e-9) == (not is_drawn or is_constant), name
        assert np.allclose(other[name], drawn[name], atol=1e-9) == (not is_drawn or is_constant), name
    assert "drawn at random (--reinit_layers): bert/encoder/layer_1/" in capsys.readouterr().err


def test_checkpoints_have_the_mean_of_the_weights_and_the_weights_themselves(
        two_layers, source, tmp_path):
    decay, changes = 0.4, dict(num_train_steps=10, freeze_embeddings=True)
    plain = train(two_layers, source, 2, settings(tmp_path / "plain", 8, **changes))
    values = train(two_layers, source, 2, settings(
        tmp_path, 8, **changes, ema_decay=decay, save_checkpoints_steps=1, keep_checkpoint_max=10))
    for name, value in plain.items():
        is_averaged = f"{name}/adam_m" in values
        trained = values[f"{name}/as_trained" if is_averaged else name]
        np.testing.assert_array_equal(trained, value, err_msg=name)
    mean = 0.0
    for step in range(1, 11):
        weights = checkpoint_values(str(tmp_path / f"model.ckpt-{step}"))
        share = min(decay, (step - 1) / (step + 8))
        mean = share * mean + (1 - share) * weights[f"{NAME}/as_trained"].astype(np.float64)
        np.testing.assert_allclose(weights[NAME], mean, rtol=1e-5)


@pytest.mark.parametrize("changes", (
    dict(freeze_layers=1), dict(reinit_layers=1), dict(ema_decay=0.9)))
def test_a_resumed_run_ends_bit_for_bit_like_the_uninterrupted_one(
        changes, two_layers, source, tmp_path):
    whole = train(two_layers, source, 2, settings(tmp_path / "whole", 8, **changes))
    with crash_after(7):
        train(two_layers, source, 2, settings(
            tmp_path / "parts", 8, save_checkpoints_steps=7, **changes))
    resumed = train(two_layers, source, 2, settings(tmp_path / "parts", 8, **changes))
    np.testing.assert_equal(resumed, whole)


LOGITS = np.array([[2, 0, -1], [0.5, 0.1, 3]], np.float32)


@pytest.mark.parametrize("labels, targets", (
    (np.array([0, 1], np.int32), [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]),
    (np.array([[1, 0, 1], [0, 0, 0]], np.float32), [[0.85, 0.15, 0.85], [0.15, 0.15, 0.15]])))
def test_smoothed_labels_change_the_gradient_and_not_the_loss(labels, targets):
    logits = tf.constant(LOGITS)
    plain, smoothed = (classifier._losses(logits, tf.constant(labels), share) for share in (0, 0.3))
    gradient, = tf.gradients(smoothed, logits)
    with tf.Session() as session:
        plain, smoothed, gradient = session.run([plain, smoothed, gradient])
    np.testing.assert_array_equal(plain, smoothed)
    several = labels.ndim == 2
    odds = np.exp(LOGITS)
    probabilities = odds / (1 + odds if several else odds.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(gradient, probabilities - targets, atol=1e-6)


@pytest.fixture
def flags(two_layers, tmp_path):
    return dict(two_layers._asdict(), task_name="cola", data_dir=write_cola(tmp_path / "cola", train=32),
                do_train=True, train_batch_size=8, num_train_epochs=1, max_seq_length=16, num_gpus=0,
                output_dir=tmp_path / "out")


@pytest.mark.parametrize("changes, parts", (
    (dict(freeze_layers=3), ("--freeze_layers=3", "between 0 and 2")),
    (dict(freeze_layers=-1), ("--freeze_layers=-1", "between 0 and 2")),
    (dict(reinit_layers=2, freeze_layers=1), ("--freeze_layers=1", "--reinit_layers=2", "overlap")),
    (dict(label_smoothing=1), ("--label_smoothing=1", "between 0 and 0.9")),
    (dict(label_smoothing=0.1, task_name="sts-b"), ("--label_smoothing=0.1", "has numbers"))))
def test_what_does_not_fit_the_model_is_one_line(changes, parts, flags, capsys):
    with ends_with_error(capsys, *parts):
        run_here({**flags, **changes})


@pytest.mark.parametrize("begun, resumed, parts", (
    (dict(freeze_layers=1), dict(freeze_layers=0), ("as if they were frozen", "--freeze_layers")),
    (dict(ema_decay=0.9), dict(ema_decay=0), ("a mean of the weights", "--ema_decay")),
    (dict(), dict(ema_decay=0.9), ("no mean of the weights", "--ema_decay"))))
def test_a_run_does_not_thaw_and_its_mean_neither_begins_nor_ends_when_it_resumes(
        begun, resumed, parts, flags, capsys):
    run_here({**flags, **begun})
    with ends_with_error(capsys, *parts):
        run_here({**flags, **resumed, "num_train_epochs": 2})


def test_a_new_run_starts_from_the_means_of_a_finished_one(flags, tmp_path, capsys):
    run_here(dict(flags, ema_decay=0.9, learning_rate=1e-3))
    run_here(dict(flags, init_checkpoint=flags["output_dir"], output_dir=tmp_path / "next",
                  learning_rate=1e-12))
    assert "as_trained" not in capsys.readouterr().err
    values = checkpoint_values(str(flags["output_dir"]))
    np.testing.assert_allclose(checkpoint_values(str(tmp_path / "next"))[NAME], values[NAME], atol=1e-9)
    assert np.abs(values[NAME] - values[f"{NAME}/as_trained"]).max() > 1e-5

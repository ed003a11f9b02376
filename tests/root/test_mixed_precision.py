"""--precision of 16 bits: models and trainings equal those of float32 except for rounding.

In float16 several replicas train like one, and a step that overflows is skipped. What is compared
went through tens of roundings one after the other, most of them independent.
"""

import numpy as np
import pytest

import modeling
from bert_reference import assert_close, evaluate, random_features, tiny_config
from conftest import checkpoint_values, on_tensorflow_1, on_tensorflow_2, plain_session
from engine.errors import UserError
from engine.training import summaries
from optimization import LossScale
from optimizer_runs import (FLOAT16_ROUNDING, INITIAL, gradients_of_steps, optimizer, overflowing,
                            run_optimizer)
from trainings import STEPS, crash_after, recorded, settings, train

import tensorflow.compat.v1 as tf

ROUNDING = {tf.float16: FLOAT16_ROUNDING, tf.bfloat16: 2.0 ** -9}  # relative


def mixed(*args, **changes):
    return settings(*args, precision="float16", **changes)


# --- The model ---------------------------------------------------------------------------


NARROW = [pytest.param(tf.float16, marks=on_tensorflow_1), pytest.param(tf.bfloat16, marks=on_tensorflow_2)]


@pytest.mark.parametrize("dtype", NARROW)
def test_outputs_and_gradients_are_those_of_float32_but_for_rounding(dtype):
    """With recomputed layers. The trainings below compare layers whose values are kept."""
    config = tiny_config(hidden_act="gelu_erf")

    def run(dtype):
        return evaluate(modeling.BertModel, config, random_features(), is_training=True,
                        gradients=True, dropout_seed=np.array([1, 2], np.int32),
                        computation=modeling.Computation(dtype=dtype, recompute=True))

    expected, actual = run(tf.float32), run(dtype)
    assert {value.dtype for value in actual.values()} == {np.dtype(np.float32)}
    # Processors round the partial sums of bfloat16 differently; 20.2 is the most that was seen.
    assert_close(actual, expected, tolerance=24 * ROUNDING[dtype])
    assert np.abs(actual["pooled"] - expected["pooled"]).max() > 1e-5


@pytest.mark.parametrize("activation", [modeling.gelu, modeling.gelu_erf])
def test_an_activation_of_large_float16_values_has_a_finite_gradient(activation):
    x = tf.constant([-60000, -300, -90, 0, 90, 300, 60000], tf.float16)
    value = activation(x)
    with tf.Session() as session:
        values, slopes = session.run([value, tf.gradients(value, x)[0]])
    assert values.dtype == slopes.dtype == np.float16
    np.testing.assert_array_equal(values, [0, 0, 0, 0, 90, 300, 60000])
    np.testing.assert_array_equal(slopes, [0, 0, 0, 0.5, 1, 1, 1])


def bits_of(values):
    """The bits of 16-bit numbers, all NaNs alike."""
    return np.where(np.isnan(values.astype(np.float32)), 0xffff, values.view(np.uint16))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("activation", [modeling.gelu, modeling.gelu_erf])
def test_looked_up_values_and_slopes_are_those_of_the_arithmetic_for_all_65536_numbers(
        activation, dtype):
    x = tf.bitcast(tf.constant(np.arange(2 ** 16, dtype=np.uint16)), dtype)
    with plain_session() as session:
        (values, slopes), looked_up = session.run([
            (value, tf.gradients(value, x)[0])
            for value in (activation(x), modeling._looked_up(activation)(x))])
    np.testing.assert_array_equal(bits_of(values), bits_of(looked_up[0]))
    np.testing.assert_array_equal(bits_of(slopes), bits_of(looked_up[1]))
    assert len(set(bits_of(values))) > 20000


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_operations_chosen_for_cards_compute_the_same_numbers(dtype):
    def run(on_cards):
        return evaluate(modeling.BertModel, tiny_config(hidden_act="gelu_erf", num_hidden_layers=1),
                        random_features(), is_training=True, gradients=True, dropout_seed=np.array([1, 2], np.int32),
                        computation=modeling.Computation(dtype=dtype, on_cards=on_cards))

    # TensorFlow 2 rewrites a function by its operations, and so its rounding.
    assert_close(run(True), run(False), tolerance=ROUNDING.get(dtype, 1e-6))


# --- The loss scale ----------------------------------------------------------------------


def scales_of(finite_steps):
    """The scale in each step, for steps that are finite or not, and the state in the end."""
    values = []
    for count in range(len(finite_steps) + 1):
        poisoned = gradients_of_steps(count)
        for step, finite in zip(poisoned, finite_steps):
            step["dense/bias"][0] = step["dense/bias"][0] if finite else np.inf
        state = run_optimizer(poisoned, lambda: optimizer("adamw", loss_scale=LossScale.create())())
        values.append((state["loss_scale/value"], state["loss_scale/good_steps"]))
    return values


def test_the_scale_halves_after_a_bad_step_and_doubles_after_a_period_of_good_ones(monkeypatch):
    monkeypatch.setattr(LossScale, "INITIAL", 4.0)
    monkeypatch.setattr(LossScale, "LARGEST", 8.0)
    monkeypatch.setattr(LossScale, "PERIOD", 2)
    assert scales_of([True, True, False, False, False, True, True]) == [
        (4, 0), (4, 1), (8, 0), (4, 0), (2, 0), (1, 0), (1, 1), (2, 0)]
    monkeypatch.setattr(LossScale, "PERIOD", 1)
    assert [scale for scale, _ in scales_of([True, True, True])] == [4, 8, 8, 8]


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_the_gradients_of_a_scaled_loss_make_the_update_of_the_loss_bit_for_bit(kind):
    steps = gradients_of_steps(5)
    scaled = [{name: value * np.float32(LossScale.INITIAL) for name, value in step.items()}
              for step in steps]
    expected = run_optimizer(steps, optimizer(kind))
    actual = run_optimizer(
        scaled, lambda: optimizer(kind, loss_scale=LossScale.create())())
    assert np.abs(expected["dense/kernel"] - INITIAL["dense/kernel"]).max() > 1e-3
    assert sorted(set(actual) - set(expected)) == sorted(LossScale.NAMES)
    np.testing.assert_equal(expected, {name: actual[name] for name in expected})


# --- Training ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, tolerance", [
    pytest.param(tf.float16, 0.01, marks=on_tensorflow_1), pytest.param(tf.bfloat16, 0.05, marks=on_tensorflow_2)])
def test_a_training_is_that_of_float32_but_for_rounding(
        dtype, tolerance, tiny_model, source, tmp_path, monkeypatch):
    losses, _ = recorded(monkeypatch)
    plain, narrow = (train(tiny_model, source, 1, settings(
        tmp_path / name, 16, learning_rate=1e-3, precision=name)) for name in ("tf32", dtype.name))
    assert losses[STEPS - 1] < losses[0] - 0.05, "a training that learns nothing proves nothing"
    np.testing.assert_allclose(losses[STEPS:], losses[:STEPS], rtol=tolerance)
    assert np.abs(np.subtract(losses[STEPS:], losses[:STEPS])).max() > 1e-6
    assert all(narrow[name].dtype == value.dtype for name, value in plain.items())
    # No second copy of a weight; in float16 the state of the loss scale more.
    state = {name: narrow[name] for name in narrow if name not in plain}
    assert state == ({"loss_scale/value": 2 ** 15, "loss_scale/good_steps": STEPS}
                     if dtype == tf.float16 else {})


def test_1x16_and_2x4x2_step_alike_with_lamb(tiny_model, source, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    one, two = (train(tiny_model, source, replicas, mixed(
        tmp_path / str(replicas), batch, gradient_accumulation_steps=times, optimizer="lamb"))
        for replicas, batch, times in ((1, 16, 1), (2, 4, 2)))
    np.testing.assert_allclose(losses[STEPS:], losses[:STEPS], rtol=FLOAT16_ROUNDING)
    np.testing.assert_allclose(norms[STEPS:], norms[:STEPS], rtol=10 * FLOAT16_ROUNDING)
    for name, value in checkpoint_values(tiny_model.init_checkpoint).items():
        if "key/bias" not in name:  # it has only noise for a gradient
            difference, moved = (np.linalg.norm(x - one[name]) for x in (two[name], value))
            assert difference < 10 * FLOAT16_ROUNDING * moved, name


@pytest.mark.parametrize("changes", [
    pytest.param(dict(precision="float16"), marks=on_tensorflow_1),
    pytest.param(dict(gradient_transfer="float16"), marks=on_tensorflow_2)], ids=str)
def test_a_step_that_overflows_on_one_replica_changes_nothing_but_the_scale_on_any(
        changes, tiny_model, source, tmp_path, capsys):
    """The last of 4, whether in a value or on the way to the other replica."""
    before, after = (train(tiny_model, source, 2, settings(
        tmp_path / f"{steps}", 8, num_train_steps=steps, **changes),
                           forward=overflowing(tiny_model, step=3)) for steps in (3, 4))
    assert "skipped 1 step with gradients" in capsys.readouterr().err
    scale = {name: (before.pop(name), after.pop(name)) for name in LossScale.NAMES}
    assert scale == {"loss_scale/value": (2 ** 15, 2 ** 14), "loss_scale/good_steps": (3, 0)}
    assert (before.pop("global_step"), after.pop("global_step")) == (3, 4)
    np.testing.assert_equal(before, after)
    history = summaries.read_history(str(tmp_path / "4"))
    assert history["skipped_steps"] == [(1, 0), (2, 0), (3, 0), (4, 1)]
    assert history["loss_scale"] == [(step, 2 ** 15) for step in (1, 2, 3, 4)]


def test_a_run_that_is_interrupted_ends_bit_for_bit_like_the_uninterrupted_one(
        tiny_model, source, tmp_path, monkeypatch):
    """A scale that falls to where steps succeed, and is tried again after each three."""
    monkeypatch.setattr(LossScale, "INITIAL", 2.0 ** 26)
    monkeypatch.setattr(LossScale, "LARGEST", 2.0 ** 26)
    monkeypatch.setattr(LossScale, "PERIOD", 3)
    _, norms = recorded(monkeypatch)
    whole = train(tiny_model, source, 2, mixed(tmp_path / "whole", 8))
    skipped = ~np.isfinite(norms)
    assert skipped[0] and not skipped.all() and skipped[~skipped.cumprod().astype(bool)].any()
    crash_step = skipped.argmin() + 2
    with crash_after(crash_step):
        train(tiny_model, source, 2, mixed(tmp_path / "parts", 8, save_checkpoints_steps=crash_step))
    middle = checkpoint_values(str(tmp_path / "parts"))
    assert middle["loss_scale/value"] < 2 ** 26 and middle["loss_scale/good_steps"] == 2
    np.testing.assert_equal(whole, train(tiny_model, source, 2, mixed(tmp_path / "parts", 8)))


def test_float16_ends_but_does_not_begin_as_a_run_goes_on(tiny_model, source, tmp_path):
    def go_on(steps, precision):
        return train(tiny_model, source, 1, settings(
            tmp_path, 8, num_train_steps=steps, precision=precision))

    narrow, plain = go_on(2, "float16"), go_on(4, "tf32")
    assert set(narrow) - set(plain) == set(LossScale.NAMES) and plain["global_step"] == 4
    with pytest.raises(UserError, match=r"\(step 4\) has no loss scale, and float16 cannot begin"):
        go_on(6, "float16")

"""--precision=float16: trains like float32, on several replicas like on one; a step that overflows is skipped.

What is compared across batches is looser than in float32: a float16 has 11 bits, and sums in
another order differ in the last of them.
"""

import numpy as np
import pytest

import modeling
from bert_reference import assert_close, evaluate, random_features, tiny_config
from commands import arguments, run_command
from conftest import checkpoint_values, on_tensorflow_1, on_tensorflow_2, write_cola
from engine.checkpoints import checkpoints
from engine.training import summaries
from optimization import LossScale
from optimizer_runs import (FLOAT16_ROUNDING, INITIAL, assert_alike, gradients_of_steps,
                            optimizer, overflowing, plain_and_narrow, run_optimizer)
from trainings import STEPS, Crash, crash_after, recorded, settings, train, training_source

import tensorflow.compat.v1 as tf

@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


def mixed(*args, **changes):
    return settings(*args, precision="float16", **changes)


def assert_equal(expected, actual):
    assert sorted(expected) == sorted(actual)
    for name, value in expected.items():
        np.testing.assert_array_equal(value, actual[name], err_msg=name)


# --- The model ---------------------------------------------------------------------------


def test_outputs_and_gradients_are_those_of_float32_but_for_rounding():
    config = tiny_config(hidden_act="gelu")

    def run(dtype):
        return evaluate(modeling.BertModel, config, random_features(), is_training=True,
                        gradients=True, dropout_seed=np.array([1, 2], np.int32),
                        computation=modeling.Computation(dtype=dtype))

    expected, actual = run(tf.float32), run(tf.float16)
    assert {value.dtype for value in actual.values()} == {np.dtype(np.float32)}
    assert_close(actual, expected, tolerance=20 * FLOAT16_ROUNDING)
    assert np.abs(actual["pooled"] - expected["pooled"]).max() > 1e-5


def test_products_are_in_float16_and_softmax_and_normalization_in_float32():
    def types(dtype):
        with tf.Graph().as_default() as graph:
            model = modeling.BertModel(tiny_config(), True, tf.zeros([1, 2], tf.int32),
                                       computation=modeling.Computation(dtype=dtype))
            tf.gradients(model.get_sequence_output(), tf.trainable_variables())
            nodes = [node for function in graph.as_graph_def().library.function
                     for node in function.node_def]
        return {kind: {tf.DType(node.attr["T"].type) for node in nodes if node.op in operations}
                for kind, operations in (("products", {"MatMul", "BatchMatMul", "BatchMatMulV2"}),
                                         ("statistics", {"Softmax", "Rsqrt"}))}

    assert types(tf.float16) == {"products": {tf.float16}, "statistics": {tf.float32}}
    assert types(tf.float32) == {"products": {tf.float32}, "statistics": {tf.float32}}


@pytest.mark.parametrize("activation", [modeling.gelu, modeling.gelu_erf])
def test_an_activation_of_large_float16_values_has_a_finite_gradient(activation):
    x = tf.constant([-60000, -300, -90, 0, 90, 300, 60000], tf.float16)
    value = activation(x)
    with tf.Session() as session:
        values, slopes = session.run([value, tf.gradients(value, x)[0]])
    assert values.dtype == slopes.dtype == np.float16
    np.testing.assert_array_equal(values, [0, 0, 0, 0, 90, 300, 60000])
    np.testing.assert_array_equal(slopes, [0, 0, 0, 0.5, 1, 1, 1])


# --- The loss scale ----------------------------------------------------------------------


def scales_of(finite_steps, use_resource=True):
    """The scale in each step, for steps that are finite or not, and the state in the end."""
    values = []
    for count in range(len(finite_steps) + 1):
        poisoned = gradients_of_steps(count)
        for step, finite in zip(poisoned, finite_steps):
            step["dense/bias"][0] = step["dense/bias"][0] if finite else np.inf
        state = run_optimizer(poisoned, lambda: optimizer("adamw", loss_scale=LossScale.create())(),
                              use_resource=use_resource)
        values.append((state["loss_scale/value"], state["loss_scale/good_steps"]))
    return values


@pytest.mark.parametrize("use_resource", (True, False))
def test_the_scale_halves_after_a_bad_step_and_doubles_after_a_period_of_good_ones(
        monkeypatch, use_resource):
    monkeypatch.setattr(LossScale, "INITIAL", 4.0)
    monkeypatch.setattr(LossScale, "LARGEST", 8.0)
    monkeypatch.setattr(LossScale, "PERIOD", 2)
    assert scales_of([True, True, False, True, False, False, False, True, True], use_resource) == [
        (4, 0), (4, 1), (8, 0), (4, 0), (4, 1), (2, 0), (1, 0), (1, 0), (1, 1), (2, 0)]
    monkeypatch.setattr(LossScale, "PERIOD", 1)
    assert [scale for scale, _ in scales_of([True, True, True], use_resource)] == [4, 8, 8, 8]


def test_a_scale_starts_at_32768_and_doubles_after_2000_good_steps():
    assert (LossScale.INITIAL, LossScale.PERIOD) == (32768, 2000)


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
    assert_equal(expected, {name: actual[name] for name in expected})


# --- Training ----------------------------------------------------------------------------


def test_a_training_is_that_of_float32_but_for_rounding(
        tiny_model, source, tmp_path, monkeypatch):
    plain, narrow = plain_and_narrow("float16", 0.01, tiny_model, source, tmp_path, monkeypatch)
    # A checkpoint has the state of the loss scale more, and all the rest in float32.
    assert sorted(set(narrow) - set(plain)) == sorted(LossScale.NAMES)
    assert (narrow["loss_scale/value"], narrow["loss_scale/good_steps"]) == (2 ** 15, STEPS)


@pytest.mark.parametrize("optimizer, parts", [
    ("adamw", ((2, 8, 1), (2, 4, 2))), pytest.param("lamb", ((2, 4, 2),), marks=on_tensorflow_1)])
def test_1x16_2x8_and_2x4x2_step_alike(
        tiny_model, source, tmp_path, monkeypatch, optimizer, parts):
    losses, norms = recorded(monkeypatch)
    runs = [train(tiny_model, source, replicas, mixed(
        tmp_path / str(index), batch, gradient_accumulation_steps=times, optimizer=optimizer))
        for index, (replicas, batch, times) in enumerate(((1, 16, 1), *parts))]
    assert_alike(runs, losses, norms, tiny_model, FLOAT16_ROUNDING)


def test_a_step_that_overflows_on_one_replica_changes_nothing_but_the_scale_on_any(
        tiny_model, source, tmp_path, capsys):
    """In step 3 of 4; then the next step shows whether the replicas are still alike."""
    def run(steps, overflow_step=3):
        return train(tiny_model, source, 2, mixed(tmp_path / f"{steps}", 8, num_train_steps=steps),
                     forward=overflowing(tiny_model, step=overflow_step))

    before, after = run(3), run(4)
    assert "skipped 1 step with gradients" in capsys.readouterr().err
    scale = {name: (before.pop(name), after.pop(name)) for name in LossScale.NAMES}
    assert scale == {"loss_scale/value": (2 ** 15, 2 ** 14), "loss_scale/good_steps": (3, 0)}
    assert (before.pop("global_step"), after.pop("global_step")) == (3, 4)
    assert_equal(before, after)
    history = summaries.read_history(str(tmp_path / "4"))
    assert history["skipped_steps"] == [(1, 0), (2, 0), (3, 0), (4, 1)]
    assert history["loss_scale"] == [(step, 2 ** 15) for step in (1, 2, 3, 4)]


@on_tensorflow_2
def test_a_run_that_is_interrupted_ends_bit_for_bit_like_the_uninterrupted_one(
        tiny_model, source, tmp_path, monkeypatch):
    """A scale that falls to where steps succeed, and is tried again after each three."""
    monkeypatch.setattr(LossScale, "INITIAL", 2.0 ** 26)
    monkeypatch.setattr(LossScale, "LARGEST", 2.0 ** 26)
    monkeypatch.setattr(LossScale, "PERIOD", 3)
    _, norms = recorded(monkeypatch)
    changes = dict(optimizer="lamb")
    whole = train(tiny_model, source, 2, mixed(tmp_path / "whole", 8, **changes))
    skipped = ~np.isfinite(norms)
    assert skipped[0] and not skipped.all() and skipped[~skipped.cumprod().astype(bool)].any()
    crash_step = skipped.argmin() + 2
    with monkeypatch.context() as patch:
        crash_after(crash_step, patch)
        with pytest.raises(Crash):
            train(tiny_model, source, 2, mixed(
                tmp_path / "parts", 8, save_checkpoints_steps=crash_step, **changes))
    middle = checkpoint_values(str(tmp_path / "parts"))
    assert middle["loss_scale/value"] < 2 ** 26 and middle["loss_scale/good_steps"] == 2
    assert_equal(whole, train(tiny_model, source, 2, mixed(tmp_path / "parts", 8, **changes)))


@on_tensorflow_2
def test_float16_can_be_switched_on_and_off_as_a_run_goes_on(tiny_model, source, tmp_path):
    steps = iter((2, 4, 6, 8))

    def go_on(replicas, batch, precision):
        return train(tiny_model, source, replicas, settings(
            tmp_path, batch, num_train_steps=next(steps), precision=precision))

    plain = go_on(1, 8, "tf32")
    narrow = go_on(2, 4, "float16")
    assert set(narrow) - set(plain) == set(LossScale.NAMES)
    assert (narrow["loss_scale/value"], narrow["loss_scale/good_steps"]) == (2 ** 15, 2)
    again = go_on(2, 4, "tf32")
    assert set(again) == set(plain) and again["global_step"] == 6
    narrow = go_on(2, 4, "float16")
    assert narrow["loss_scale/good_steps"] == 2 and narrow["global_step"] == 8
    assert checkpoints.latest(str(tmp_path)).parameters() == checkpoints.open_checkpoint(
        tiny_model.init_checkpoint).parameters() + ["output_bias", "output_weights"]


@on_tensorflow_1
def test_the_command_trains_evaluates_and_exports_with_mixed_precision(tiny_model, tmp_path):
    process = run_command("--do_train", "--do_eval", "--do_export", "--fp16", *arguments(dict(
        tiny_model._asdict(), task_name="cola", max_seq_length=24, train_batch_size=4,
        data_dir=write_cola(tmp_path / "cola", train=48, dev=9), output_dir=tmp_path / "out",
        num_cpu_replicas=2, num_train_epochs=1)))
    assert process.returncode == 0, process.stderr
    assert "--precision=float16 is about a hundred times slower" in process.stderr
    assert "The loss scale of the last step was 32,768" in process.stderr
    assert (tmp_path / "out" / "export" / "saved_model.pb").exists()

"""AdamW, LAMB and layer-wise learning rates against NumPy."""

import numpy as np
import pytest

from replication import graph_functions
import multigpu_optimizer
import optimization
from conftest import assert_same_training, checkpoint_values, on_tensorflow_2
from optimizer_runs import DECAY, EPSILON, INITIAL, gradients_of_steps, optimizer, run_optimizer
from trainings import settings, train


def in_numpy(steps, learning_rate, *, lamb, factor=lambda name: 1.0, clip_norm=1.0, initial=None,
             corrected=False):
    """LAMB, or AdamW, as the papers have them, in float64. Corrected AdamW is PyTorch's."""
    w = {name: value.astype(np.float64) for name, value in (initial or INITIAL).items()}
    m = {name: np.zeros_like(value) for name, value in w.items()}
    v = {name: np.zeros_like(value) for name, value in w.items()}
    for t, gradients in enumerate(steps, start=1):
        m_share, v_share = (1 - 0.9 ** t, 1 - 0.999 ** t) if corrected else (1, 1)
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients.values()))
        for name, g in gradients.items():
            g = g.astype(np.float64) * min(1.0, clip_norm / norm)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g ** 2
            is_excluded = "LayerNorm" in name or "bias" in name
            u = m[name] / m_share / (np.sqrt(v[name] / v_share) + EPSILON)
            u += (0 if is_excluded else DECAY) * w[name]
            ratio = 1.0
            norms = np.linalg.norm(w[name]), np.linalg.norm(u)
            if lamb and not is_excluded and min(norms) > 0:
                ratio = norms[0] / norms[1]
            w[name] = w[name] - learning_rate * factor(name) * ratio * u
    return {**w, **{f"{name}/adam_m": value for name, value in m.items()},
            **{f"{name}/adam_v": value for name, value in v.items()},
            **({multigpu_optimizer.UPDATES: len(steps)} if corrected else {})}


def assert_close(expected, actual):
    assert sorted(expected) == sorted(actual)
    for name, value in expected.items():  # 1 - 0.999 is 1.3e-5 off in float32
        np.testing.assert_allclose(actual[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


CORRECTED = pytest.mark.parametrize("corrected", (False, True))


@CORRECTED
@pytest.mark.parametrize("kind", ["adamw", "lamb"])
@pytest.mark.parametrize("use_resource", (True, False))
def test_twenty_steps_equal_the_formula_in_numpy(kind, use_resource, corrected):
    steps = gradients_of_steps(20)
    actual, count = run_optimizer(steps, optimizer(kind, bias_correction=corrected),
                                  use_resource=use_resource, global_step=True)
    assert count == 20
    expected = in_numpy(steps, 0.01, lamb=kind == "lamb", corrected=corrected)
    assert_close(expected, actual)
    for name in INITIAL if corrected else ():  # else 1 - 0.999 does not cancel
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=1e-6, err_msg=name)


def test_a_parameter_of_zeros_still_moves(monkeypatch):
    zeros = {**INITIAL, "dense/kernel": np.zeros((2, 2), np.float32)}
    monkeypatch.setitem(INITIAL, "dense/kernel", zeros["dense/kernel"])
    steps = gradients_of_steps(2)
    actual = run_optimizer(steps, optimizer("lamb"))
    assert_close(in_numpy(steps, 0.01, lamb=True, initial=zeros), actual)
    assert np.abs(actual["dense/kernel"]).max() > 1e-3


@CORRECTED
@pytest.mark.parametrize("kind, use_resource, bad", [("adamw", True, np.nan), ("lamb", False, np.inf)])
def test_a_gradient_that_is_not_finite_leaves_everything_but_the_step(
        kind, use_resource, bad, corrected):
    def run(steps):
        return run_optimizer(steps, optimizer(kind, bias_correction=corrected),
                             use_resource=use_resource, global_step=True)

    steps = gradients_of_steps(3)
    poisoned = {name: value.copy() for name, value in steps[2].items()}
    poisoned["dense/bias"][1] = poisoned["dense/kernel"][0, 1] = bad
    before, _ = run(steps[:2])
    after, count = run(steps[:2] + [poisoned])
    assert count == 3
    recovered, _ = run(steps[:2] + [poisoned, steps[2]])
    whole, _ = run(steps)
    for expected, found in ((before, after), (whole, recovered)):
        np.testing.assert_equal(expected, found)


@on_tensorflow_2
@pytest.mark.parametrize("kind, corrected", [("adamw", True), ("lamb", False)])
def test_a_compiled_update_is_that_of_the_kernels_and_skips_the_same_steps(kind, corrected):
    def run(steps, **options):
        return run_optimizer(steps, optimizer(kind, bias_correction=corrected, **options))

    steps, compiled = gradients_of_steps(4), dict(compiled=True)
    assert_close(run(steps), run(steps, **compiled))
    steps[3]["dense/bias"][1] = np.nan
    np.testing.assert_equal(run(steps[:3], **compiled), run(steps, **compiled))


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_each_parameter_has_its_own_learning_rate(kind):
    def factor(name):
        return {"dense/kernel": 0.5, "dense/bias": 0.1}.get(name, 1.0)
    steps = gradients_of_steps(5)
    expected = in_numpy(steps, 0.01, lamb=kind == "lamb", factor=factor)
    assert_close(expected, run_optimizer(steps, optimizer(kind, learning_rate_factor=factor)))


def test_the_first_step_of_a_model_moves_each_layer_by_its_rate(two_layers, source, tmp_path):
    """Adam's first step is +-rate * 0.1 / sqrt(0.001), wherever the gradient is not tiny."""
    initial = checkpoint_values(two_layers.init_checkpoint)
    moved = train(two_layers, source, 2, settings(
        tmp_path, 8, num_train_steps=1, warmup_steps=0, learning_rate=1e-3, layer_lr_decay=0.5))
    for name, factor in (("bert/pooler/dense/bias", 1.0),
                         ("bert/encoder/layer_1/output/dense/bias", 0.5),
                         ("bert/encoder/layer_0/output/dense/bias", 0.25),
                         ("bert/embeddings/LayerNorm/beta", 0.125)):
        largest = np.abs(moved[name] - initial[name]).max()
        assert largest == pytest.approx(factor * 1e-3 * 0.1 / np.sqrt(0.001), rel=0.05), name


@on_tensorflow_2
def test_replicas_share_one_compiled_update_and_end_with_the_values_of_the_kernels(
        tiny_model, source, tmp_path, monkeypatch):
    def run(name):
        return train(tiny_model, source, 2, settings(
            tmp_path / name, 8, num_train_steps=3, learning_rate=1e-3, adam_bias_correction=True))

    programs, make = [], graph_functions.called

    def called(function, name, signature, by_xla):
        programs.extend([name] * by_xla)
        return make(function, name, signature, by_xla=by_xla)

    plain = run("plain")
    monkeypatch.setattr(graph_functions, "called", called)
    create = optimization.create_update
    monkeypatch.setattr(optimization, "create_update", lambda *args, **more: create(
        *args, **{**more, "compiled": True}))  # as on cards
    assert_same_training(plain, run("compiled"))
    assert programs == ["optimizer_update"]

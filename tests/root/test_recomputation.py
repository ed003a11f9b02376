"""--recompute_layers: the same training, bit for bit, with less kept from forward to backward."""

import numpy as np
import pytest

import modeling
from bert_reference import evaluate, random_features, tiny_config, values_for
from conftest import on_tensorflow_1
from engine.devices import runtime
from kept_bytes import kept_bytes
from trainings import recorded, settings, train

import tensorflow.compat.v1 as tf


def assert_same(expected, actual, tolerance):
    """Bit for bit in 1.15. 2.15 rewrites a function by what is kept of it, and so its rounding."""
    if runtime.IS_TENSORFLOW_1:
        tolerance = 0
    assert sorted(expected) == sorted(actual)
    for name, value in expected.items():
        assert np.abs(value - actual[name]).max() <= tolerance, name


def test_a_training_with_dropout_is_the_same(two_layers, source, tmp_path, monkeypatch):
    losses, _ = recorded(monkeypatch)
    dropout = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    kept, recomputed = (train(
        two_layers, source, 1, settings(
            tmp_path / str(recompute), 4, num_train_steps=4, recompute_layers=recompute,
            gradient_accumulation_steps=2), config_changes=dropout)
        for recompute in (False, True))
    np.testing.assert_allclose(losses[:4], losses[4:], rtol=1e-5)
    assert_same({name: kept[name] for name in kept if "/adam_" not in name},
                {name: recomputed[name] for name in recomputed if "/adam_" not in name}, 1e-5)


@pytest.mark.parametrize("activation", [
    "gelu", pytest.param(lambda x: tf.nn.softplus(x), marks=on_tensorflow_1)],
                         ids=["shared function", "in the graph"])
def test_gradients_are_the_same_and_less_is_kept_for_them(activation):
    config = tiny_config(hidden_act=activation, num_hidden_layers=2)
    features = random_features(batch=3, length=20)
    kept, recomputed = (dict(computation=modeling.Computation(recompute=recompute))
                        for recompute in (False, True))
    expected, actual = (
        evaluate(modeling.BertModel, config, features, is_training=True, gradients=True,
                 values=values_for(config), dropout_seed=np.array([1, 2], np.int32), **computation)
        for computation in (kept, recomputed))
    assert max(np.abs(expected[name]).max() for name in expected if name[:2] == "d ") > 0.1
    assert_same(expected, actual, 1e-4)
    assert kept_bytes(config, features, **recomputed) < kept_bytes(config, features, **kept) / 2

"""--recompute_layers: the same training, bit for bit, with less kept from forward to backward."""

import numpy as np
import pytest

import modeling
from bert_reference import load, random_features, tiny_config, values_for
from engine.devices import runtime
from trainings import recorded, settings, train, training_source

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def source(two_layers, tmp_path_factory):
    return training_source(two_layers, tmp_path_factory.mktemp("cola"))


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


def gradients_and_kept_bytes(config, features, recompute):
    """The gradients of a step, and the bytes that go from the layers to their gradients."""
    with tf.Graph().as_default() as graph, tf.Session(
            config=runtime.session_config()) as session:
        model = modeling.BertModel(
            config, True, dropout_seed=tf.constant([1, 2]),
            computation=modeling.Computation(recompute=recompute),
            **{name: tf.constant(value, tf.int32) for name, value in features.items()})
        forward = set(graph.get_operations())
        variables = tf.trainable_variables()
        gradients = {
            variable.op.name: tf.convert_to_tensor(gradient) for variable, gradient in zip(
                variables, tf.gradients(tf.reduce_sum(tf.sin(model.get_sequence_output())),
                                        variables)) if gradient is not None}
        kept = {tensor.name: tensor for op in graph.get_operations() if op not in forward
                for tensor in op.inputs if tensor.op in forward and tensor.dtype != tf.resource}
        load(session, values_for(config))
        values, kept = session.run([gradients, kept])
        return values, sum(array.nbytes for array in kept.values())


@pytest.mark.parametrize("activation", ["gelu", lambda x: tf.nn.softplus(x)],
                         ids=["shared function", "in the graph"])
def test_gradients_are_the_same_and_less_is_kept_for_them(activation):
    config = tiny_config(hidden_act=activation, num_hidden_layers=2)
    features = random_features(batch=3, length=20)
    expected, many = gradients_and_kept_bytes(config, features, recompute=False)
    actual, few = gradients_and_kept_bytes(config, features, recompute=True)
    assert any(np.abs(value).max() > 0.1 for value in expected.values())
    assert_same(expected, actual, 1e-4)
    assert few < many / 2

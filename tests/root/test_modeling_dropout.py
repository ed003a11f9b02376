"""Proves that dropout drops the right share, and repeats where its seed says so."""

import itertools
import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from bert_reference import (assert_close, load, random_features, random_values,
                            tiny_config)
from conftest import plain_session


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.003])
def test_dropout_keeps_the_right_share_and_the_mean(prob):
    with plain_session() as session:
        values = session.run(modeling.dropout(
            tf.ones([1001, 1001]), prob, dropout_seed=tf.constant([5, 6])))  # an odd number
    kept = values != 0
    deviation = math.sqrt(prob * (1 - prob) / values.size)
    assert abs((1 - kept.mean()) - prob) < 1e-4 + 4 * deviation
    np.testing.assert_allclose(values[kept], 1 / (1 - prob), rtol=1e-4)
    # Neighbours share the bits of one draw: their decisions must be independent all the same.
    for first, second in ((kept[:, :-1], kept[:, 1:]), (kept[:-1], kept[1:])):
        assert abs((~first & ~second).mean() - prob**2) < 5 * prob / math.sqrt(values.size) + 2e-4


def test_dropout_of_probability_zero_or_none_is_the_identity():
    with tf.Graph().as_default():
        ones = tf.ones([3])
        assert modeling.dropout(ones, 0.0) is ones and modeling.dropout(ones, None) is ones


def test_dropouts_gradient_passes_where_it_kept():
    with tf.Graph().as_default(), plain_session() as session:
        ones = tf.ones([50, 50])
        output = modeling.dropout(ones, 0.3, dropout_seed=tf.constant([1, 2]))
        dropped, gradient = session.run([output, tf.gradients(output, ones)[0]])
        np.testing.assert_array_equal(dropped, gradient)


def train_outputs(seed, config=None, steps=1, graph_seed=None):
    """Outputs in training of a model whose inputs and weights are always the same."""
    config, features = config or tiny_config(), random_features()
    with tf.Graph().as_default(), plain_session() as session:
        tf.set_random_seed(graph_seed)
        placeholder = tf.placeholder(tf.int32, [2])
        inputs = {name: tf.constant(value, tf.int32) for name, value in features.items()}
        model = modeling.BertModel(config, True,
                                   dropout_seed=None if seed is None else placeholder, **inputs)
        load(session, random_values(tf.global_variables()))
        fetches = [model.get_embedding_output(), model.get_sequence_output()]
        feeds = {} if seed is None else {placeholder: seed}
        return [session.run(fetches, feeds) for _ in range(steps)]


def test_the_same_seed_repeats_to_the_last_bit_and_another_does_not():
    first, again, other = (train_outputs(seed)[0] for seed in ([3, 4], [3, 4], [3, 5]))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], other[0]) and not np.array_equal(first[1], other[1])


def test_without_a_seed_each_step_differs_and_the_graphs_seed_repeats_the_run():
    run, again, other = (train_outputs(None, steps=2, graph_seed=seed) for seed in (8, 8, 9))
    assert not np.array_equal(run[0], run[1])
    np.testing.assert_array_equal(run, again)
    assert not np.array_equal(run, other)


def test_attention_drops_probabilities_and_its_gradient_knows():
    """Against the gradient that TensorFlow derives of the same formula with the same mask."""
    rng = np.random.RandomState(1)
    seed = [7, 8]
    with tf.Graph().as_default(), plain_session() as session:
        query, key, value = (tf.constant(rng.normal(size=[2, 3, length, 4]), tf.float32)
                             for length in (5, 7, 7))
        bias = tf.constant(-10000.0 * rng.randint(2, size=[2, 1, 1, 7]), tf.float32)
        probs = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 2.0 + bias)
        formula = tf.matmul(modeling.dropout(probs, 0.3, dropout_seed=seed), value)
        ours, = modeling._attend(query, key, value, bias, 0.3, seed)
        results = []
        for context in (ours, formula):
            gradients = tf.gradients(tf.reduce_sum(tf.sin(context)), [query, key, value])
            results.append(session.run({"context": context, "d query": gradients[0],
                                        "d key": gradients[1], "d value": gradients[2]}))
        assert_close(*results, 1e-6)
        assert np.abs(results[0]["d query"]).max() > 0.01


def masks_at(places):
    """For each (variable, output): where the dropout behind the variable kept.

    The variable is the one weight but scales that is not 0, so that dropout sees ones, and the
    output after it is above 0 where it kept.
    """
    config = tiny_config(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    features = {name: tf.constant(value, tf.int32)
                for name, value in random_features(8, 9).items()}
    model = modeling.BertModel(config, True, dropout_seed=tf.constant([1, 2]), **features)
    outputs = {f"layer_{index}": layer
               for index, layer in enumerate(model.get_all_encoder_layers())}
    outputs["embedding"] = model.get_embedding_output()
    with plain_session() as session:
        for variable, output in places.items():
            load(session, {each.op.name: np.full(each.shape.as_list(), float(
                each.op.name.endswith("gamma") or each.op.name == variable))
                for each in tf.global_variables()})
            yield session.run(outputs[output]) > 0


def test_each_place_in_the_network_draws_a_mask_of_its_own():
    places = {"bert/embeddings/LayerNorm/beta": "embedding"}
    for index in range(3):
        for name in ("attention/output", "output"):
            places[f"bert/encoder/layer_{index}/{name}/dense/bias"] = f"layer_{index}"
    masks = list(masks_at(places))
    for first, second in itertools.combinations(masks, 2):
        assert 0.4 < first.mean() < 0.6
        assert 0.4 < (first == second).mean() < 0.6

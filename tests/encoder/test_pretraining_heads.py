"""The pretraining heads: Google's names and numbers, and one dense gradient of the tied table."""

import numpy as np
import pytest

import modeling
from bert_reference import VOCAB, load, placeholders, random_features, random_values, tiny_config
from conftest import googles, on_tensorflow_2, plain_session
from encoder import pretraining_heads

import tensorflow.compat.v1 as tf

POSITIONS = np.array([[1, 3, 0], [2, 2, 5], [6, 0, 0]], np.int32)
IDS = np.array([[4, 9, 0], [36, 1, 2], [7, 0, 0]], np.int32)
WEIGHTS = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0]], np.float32)
NEXT = np.array([0, 1, 1], np.int32)


def build(inputs, config):
    """The losses, as Google has them, and all that they are made of."""
    model = modeling.BertModel(config, False, **inputs)
    states = tf.reshape(model.get_sequence_output_at(tf.constant(POSITIONS)), [-1, 16])
    masked = pretraining_heads.masked_lm_logits(states, model.get_embedding_table(), config)
    following = pretraining_heads.next_sentence_logits(model.get_pooled_output(), config)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=IDS.reshape(-1), logits=masked)
    weights = WEIGHTS.reshape(-1)
    return {
        "masked": tf.reduce_sum(losses * weights) / (weights.sum() + 1e-5),
        "next": tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=NEXT, logits=following)),
        "masked log probs": tf.nn.log_softmax(masked),
        "next log probs": tf.nn.log_softmax(following)}


def run(builder, config):
    """Values and gradients by name, of variables that depend on their names and shapes alone."""
    features = random_features()
    with tf.Graph().as_default(), plain_session() as session:
        inputs = placeholders(features)
        outputs = builder(inputs, config)
        variables = tf.trainable_variables()
        gradients = tf.gradients(outputs["masked"] + outputs["next"], variables)
        outputs.update({f"d {variable.op.name}": tf.convert_to_tensor(gradient)
                        for gradient, variable in zip(gradients, variables)})
        load(session, random_values(tf.global_variables()))
        return session.run(outputs, {inputs[name]: features[name] for name in features})


def googles_heads(inputs, config):
    bert_pretraining = googles("run_pretraining")
    model = googles("modeling").BertModel(config, False, **inputs)
    masked, _, masked_log_probs = bert_pretraining.get_masked_lm_output(
        config, model.get_sequence_output(), model.get_embedding_table(),
        tf.constant(POSITIONS), tf.constant(IDS), tf.constant(WEIGHTS))
    following, _, next_log_probs = bert_pretraining.get_next_sentence_output(
        config, model.get_pooled_output(), tf.constant(NEXT))
    return {"masked": masked, "next": following,
            "masked log probs": masked_log_probs, "next log probs": next_log_probs}


def test_names_losses_probabilities_and_gradients_are_googles():
    googles("run_pretraining")
    config = tiny_config(hidden_act="tanh")
    expected, actual = run(googles_heads, config), run(build, config)
    assert sorted(expected) == sorted(actual)
    assert "d cls/predictions/transform/LayerNorm/gamma" in expected
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_tied_tables_gradient_is_one_tensor_not_rows_for_replicas_to_gather():
    inputs = {name: tf.constant(value) for name, value in random_features().items()}
    losses = build(inputs, tiny_config())
    table, = [variable for variable in tf.trainable_variables()
              if variable.op.name.endswith("word_embeddings")]
    gradient, = tf.gradients(losses["masked"] + losses["next"], [table])
    assert isinstance(gradient, tf.Tensor) and gradient.shape.as_list() == [VOCAB, 16]


@pytest.mark.parametrize("dtype, rounding", [
    (tf.float16, 2.0 ** -11), pytest.param(tf.bfloat16, 2.0 ** -8, marks=on_tensorflow_2)])
def test_the_product_with_the_table_has_the_precision_of_the_layers_and_scores_are_wide(
        dtype, rounding):
    states = tf.constant(np.random.RandomState(0).normal(size=[9, 16]), tf.float32)
    table = tf.get_variable("table", [VOCAB, 16])
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        wide, narrow = (pretraining_heads.masked_lm_logits(
            states, table, tiny_config(), modeling.Computation(dtype=each))
            for each in (tf.float32, dtype))
    products = [op for op in tf.get_default_graph().get_operations()
                if op.type == "MatMul" and op.outputs[0].shape[1] == VOCAB]
    assert [op.outputs[0].dtype for op in products] == [tf.float32, dtype]
    assert narrow.dtype == tf.float32
    with plain_session() as session:
        load(session, random_values(tf.global_variables()))
        expected, actual = session.run([wide, narrow])
    np.testing.assert_allclose(actual, expected, atol=10 * rounding * np.abs(expected).max())
    assert np.abs(actual - expected).max() > 1e-5


def test_the_states_at_some_positions_are_those_of_the_sequence_output():
    inputs = {name: tf.constant(value) for name, value in random_features().items()}
    model = modeling.BertModel(tiny_config(), False, **inputs)
    some = model.get_sequence_output_at(tf.constant(POSITIONS))
    pooled = model.pool(model.get_sequence_output_at(tf.zeros([3, 1], tf.int32))[:, 0])
    with plain_session() as session:
        session.run(tf.global_variables_initializer())
        some, whole, pooled, apart = session.run(
            [some, model.get_sequence_output(), pooled, model.get_pooled_output()])
    expected = np.take_along_axis(whole, POSITIONS[:, :, np.newaxis], axis=1)
    np.testing.assert_allclose(some, expected, atol=1e-5)
    np.testing.assert_allclose(pooled, apart, atol=1e-5)

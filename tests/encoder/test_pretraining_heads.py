"""The pretraining heads: the tied table's gradient and precision, states at some positions alone.

`tests/pretraining/test_pretraining_google.py` compares names and losses with Google's.
"""

import numpy as np
import pytest

import modeling
from bert_reference import VOCAB, load, random_features, random_values, tiny_config
from conftest import on_tensorflow_2, plain_session
from encoder import pretraining_heads

import tensorflow.compat.v1 as tf

POSITIONS = np.array([[1, 3, 0], [2, 2, 5], [6, 0, 0]], np.int32)


def build_model():
    inputs = {name: tf.constant(value) for name, value in random_features().items()}
    return modeling.BertModel(tiny_config(), False, **inputs)


def test_the_tied_tables_gradient_is_one_tensor_not_rows_for_replicas_to_gather():
    model = build_model()
    states = tf.reshape(model.get_sequence_output_at(tf.constant(POSITIONS)), [-1, 16])
    table = model.get_embedding_table()
    logits = pretraining_heads.masked_lm_logits(states, table, tiny_config())
    gradient, = tf.gradients(tf.reduce_sum(tf.nn.log_softmax(logits)), [table])
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

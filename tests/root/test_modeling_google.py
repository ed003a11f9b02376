"""Proves that `modeling` is Google's `bert.modeling`: same variables, outputs and gradients.

Google's own tests run on ours too. Its package runs on TensorFlow 1.15 only.
"""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from bert_reference import (VOCAB, assert_close, evaluate, load, random_features,
                            random_values, tiny_config)
from conftest import ROOT, plain_session


@pytest.fixture(name="google")
def google_modeling():
    return pytest.importorskip("bert.modeling")


@pytest.mark.parametrize("module", ["modeling", "optimization", "tokenization"])
def test_googles_own_tests_pass_on_our_modules(module):
    package = pytest.importorskip("bert")
    with open(f"{package.__path__[0]}/{module}_test.py", encoding="utf-8") as file:
        source = file.read()
    theirs = f"from bert import {module}\n"
    assert source.count(theirs) == 1
    subprocess.run([sys.executable, "-c", source.replace(theirs, f"import {module}\n")], cwd=ROOT,
                   check=True)


@pytest.mark.parametrize("config, options, batch, length", [
    (dict(), dict(), 3, 7),
    (dict(), dict(scope="student/encoder"), 2, 24),
    (dict(hidden_act="relu"), dict(use_one_hot_embeddings=True), 5, 1),
    (dict(hidden_act="tanh", num_attention_heads=1), dict(), 1, 16),
    (dict(hidden_act="linear", num_hidden_layers=1, type_vocab_size=3), dict(), 4, 9),
])
def test_outputs_and_gradients_are_googles(google, config, options, batch, length):
    config, features = tiny_config(**config), random_features(batch, length)
    ours, theirs = (evaluate(module.BertModel, config, features, gradients=True, **options)
                    for module in (modeling, google))
    assert_close(ours, theirs)


def test_variables_are_googles_in_the_same_order(google):
    def variables(module):
        with tf.Graph().as_default():
            module.BertModel(tiny_config(), True, tf.zeros([1, 2], tf.int32))
            return [(v.op.name, v.shape.as_list()) for v in tf.trainable_variables()]

    assert variables(modeling) == variables(google)


@pytest.mark.parametrize("rank, flat", [(2, False), (2, True), (3, False), (3, True)])
def test_attention_between_two_sequences_is_googles(google, rank, flat):
    def attend(module):
        rng = np.random.RandomState(5)
        sizes = dict(batch_size=2, from_seq_length=3, to_seq_length=5) if rank == 2 else {}
        with tf.Graph().as_default(), plain_session() as session:
            source, target = (
                tf.constant(rng.normal(size=[2, n, 6] if rank == 3 else [2 * n, 6]), tf.float32)
                for n in (3, 5))
            context = module.attention_layer(
                source, target, tf.constant(rng.randint(2, size=[2, 3, 5])),
                num_attention_heads=2, size_per_head=4, query_act=tf.tanh, key_act=tf.sin,
                value_act=tf.nn.relu, do_return_2d_tensor=flat, **sizes)
            load(session, random_values(tf.global_variables()))
            return {"context": session.run(context)}

    assert_close(attend(modeling), attend(google))


@pytest.mark.parametrize("all_layers", [False, True])
def test_the_transformer_with_a_mask_for_each_position_is_googles(google, all_layers):
    def transform(module, activation):
        rng = np.random.RandomState(6)
        with tf.Graph().as_default(), plain_session() as session:
            outputs = module.transformer_model(
                tf.constant(rng.normal(size=[2, 5, 8]), tf.float32),
                tf.constant(rng.randint(2, size=[2, 5, 5])), hidden_size=8,
                num_hidden_layers=2, num_attention_heads=2, intermediate_size=6,
                intermediate_act_fn=activation, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0, do_return_all_layers=all_layers)
            load(session, random_values(tf.global_variables()))
            outputs = outputs if all_layers else [outputs]
            return {str(index): value for index, value in enumerate(session.run(outputs))}

    for activation in (tf.tanh, tf.nn.elu):  # elu is not one of ours
        assert_close(transform(modeling, activation), transform(google, activation))


def test_embeddings_without_types_or_positions_and_with_several_ids_are_googles(google):
    def embed(module):
        ids = np.random.RandomState(7).randint(VOCAB, size=[2, 3, 2])
        with tf.Graph().as_default(), plain_session() as session:
            words, _ = module.embedding_lookup(tf.constant(ids), VOCAB, 4)
            output = module.embedding_postprocessor(words, use_position_embeddings=False,
                                                    dropout_prob=0.0)
            load(session, random_values(tf.global_variables()))
            return session.run({"words": words, "output": output})

    assert_close(embed(modeling), embed(google))


def test_attention_mask_is_googles(google):
    def mask(module):
        with tf.Graph().as_default(), plain_session() as session:
            return session.run(module.create_attention_mask_from_input_mask(
                tf.zeros([2, 3, 4]), tf.constant([[1, 0], [1, 1]])))

    np.testing.assert_array_equal(mask(modeling), mask(google))

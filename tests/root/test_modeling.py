"""Proves that `modeling` is BERT: equal to a NumPy transcription of the papers' formulas."""

import json
import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from bert_reference import (BATCH, LENGTH, assert_close, evaluate, load, random_features, random_values,
                            reference_bert, tiny_config, values_for)
from conftest import on_tensorflow_1, on_tensorflow_2, plain_session


@pytest.mark.parametrize("activation", ["gelu", "tanh"])  # gelu_erf has its outputs checked below, by its gradients
def test_outputs_are_those_of_the_papers_formulas(activation):
    config, features = tiny_config(hidden_act=activation), random_features()
    values = values_for(config)
    actual = evaluate(modeling.BertModel, config, features, values=values,
                      rewritten=activation == "gelu")
    assert_close(actual, reference_bert(values, config, **features))


@pytest.mark.parametrize("length, known_shape", [(1, False), (24, True), (24, False)])
def test_any_length_up_to_the_limit_works_known_early_or_late(length, known_shape):
    config, features = tiny_config(), random_features(2, length)
    values = values_for(config)
    actual = evaluate(modeling.BertModel, config, features, values=values,
                      known_shape=known_shape)
    assert_close(actual, reference_bert(values, config, **features))


def test_one_hot_and_gathered_embeddings_agree_and_only_the_latter_has_a_sparse_gradient():
    config, features = tiny_config(), random_features()
    gathered, one_hot = (
        evaluate(modeling.BertModel, config, features, gradients=True,
                 use_one_hot_embeddings=choice) for choice in (False, True))
    assert_close(gathered, one_hot)
    with tf.Graph().as_default():
        for choice, kind in ((False, tf.IndexedSlices), (True, tf.Tensor)):
            model = modeling.BertModel(config, True, tf.zeros([1, 2], tf.int32),
                                       use_one_hot_embeddings=choice, scope=f"bert_{choice}")
            loss = tf.reduce_sum(model.get_pooled_output())
            assert isinstance(tf.gradients(loss, model.get_embedding_table())[0], kind)


@pytest.mark.parametrize("activation", [
    pytest.param("gelu", marks=on_tensorflow_1), pytest.param("gelu_erf", marks=on_tensorflow_2)])
def test_gradients_are_the_slopes_of_the_loss(activation):
    """Against central differences of the NumPy reference, along a random direction."""
    config, features = tiny_config(hidden_act=activation), random_features()
    values = values_for(config)
    actual = evaluate(modeling.BertModel, config, features, values=values, gradients=True,
                      rewritten=activation == "gelu")
    weighting = np.random.RandomState(2).normal(size=[config.hidden_size])
    rng = np.random.RandomState(4)

    def loss(shifted):
        outputs = reference_bert(shifted, config, **features)
        return (np.sin(outputs["sequence"] * weighting).sum()
                + (outputs["pooled"] * weighting).sum())

    for name in values:
        direction = rng.normal(size=values[name].shape)
        step = 1e-6
        ahead, behind = ({**values, name: values[name] + sign * step * direction}
                         for sign in (1, -1))
        slope = (loss(ahead) - loss(behind)) / (2 * step)
        size = np.abs(actual["d " + name] * direction).sum()
        assert abs((actual["d " + name] * direction).sum() - slope) < 1e-4 * max(1.0, size), name


@pytest.mark.parametrize("computation", [
    pytest.param(modeling.Computation(), marks=on_tensorflow_1),
    pytest.param(modeling.Computation(recompute=True), marks=on_tensorflow_2)], ids=("shared", "recomputed"))
def test_attention_scores_are_given_out_where_asked_for_and_take_a_gradient(computation):
    """Against Q K^T / sqrt(H), written out over the states that enter each layer."""
    config, features = tiny_config(), random_features()
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    rng = np.random.RandomState(4)

    def project(x, layer, name):
        kernel, bias = (tf.get_variable(f"bert/encoder/layer_{layer}/attention/self/{name}/{part}")
                        for part in ("kernel", "bias"))
        x = tf.tensordot(x, kernel, 1) + bias
        return tf.transpose(tf.reshape(x, [BATCH, LENGTH, heads, size]), [0, 2, 1, 3])

    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.constant(value, tf.int32) for name, value in features.items()}
        model = modeling.BertModel(config, False, **inputs, gives_attention_scores=True,
                                   computation=computation)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            entering = [model.get_embedding_output()] + model.get_all_encoder_layers()[:-1]
            written_out = [
                tf.matmul(project(x, layer, "query"), project(x, layer, "key"), transpose_b=True)
                / math.sqrt(size) for layer, x in enumerate(entering)]
        weights = [tf.constant(rng.normal(size=[BATCH, heads, LENGTH, LENGTH]), tf.float32)
                   for _ in entering]
        outputs = []
        for scores in (model.get_attention_scores(), written_out):
            loss = tf.reduce_sum(tf.sin(model.get_sequence_output())) + tf.add_n([
                tf.reduce_sum(tf.sin(score) * weight) for score, weight in zip(scores, weights)])
            gradients = zip(tf.trainable_variables(), tf.gradients(loss, tf.trainable_variables()))
            outputs.append({f"scores of layer {layer}": x for layer, x in enumerate(scores)})
            outputs[-1].update({"d " + variable.op.name: tf.convert_to_tensor(gradient)
                                for variable, gradient in gradients if gradient is not None})
        load(session, random_values(tf.global_variables()))
        assert_close(*session.run(outputs))
    with tf.Graph().as_default():
        plain = modeling.BertModel(config, False, tf.zeros([1, 2], tf.int32))
        assert plain.get_attention_scores() == [None] * config.num_hidden_layers


def test_a_missing_mask_attends_to_all_and_missing_types_are_zero():
    config, features = tiny_config(), random_features()
    plain = evaluate(modeling.BertModel, config, {"input_ids": features["input_ids"]})
    explicit = evaluate(modeling.BertModel, config, {
        "input_ids": features["input_ids"], "input_mask": np.ones([BATCH, LENGTH], int),
        "token_type_ids": np.zeros([BATCH, LENGTH], int)})
    assert_close(plain, explicit, 0)


# --- Variables and checkpoints -----------------------------------------------------------


def test_initial_values_are_ones_zeros_and_truncated_normal():
    config = tiny_config(vocab_size=2000, initializer_range=0.5)
    with tf.Graph().as_default(), plain_session() as session:
        tf.set_random_seed(1)
        modeling.BertModel(config, True, tf.zeros([1, 2], tf.int32))
        session.run(tf.global_variables_initializer())
        values = {v.op.name: session.run(v) for v in tf.global_variables()}
    for name, value in values.items():
        if name.endswith(("bias", "beta")):
            assert (value == 0).all(), name
        elif name.endswith("gamma"):
            assert (value == 1).all(), name
        else:
            # A normal distribution cut off at 2 deviations has 0.88 of its deviation.
            assert 0.3 < value.std() < 0.6 and np.abs(value).max() <= 1.0, name
    words = values["bert/embeddings/word_embeddings"]
    assert abs(words.std() - 0.88 * 0.5) < 0.01


def test_a_checkpoint_initialises_what_it_holds_and_no_more(tmp_path):
    path = str(tmp_path / "model.ckpt")
    small, large = tiny_config(num_hidden_layers=1), tiny_config(num_hidden_layers=2)
    ids = tf.int32, [1, 2]
    with tf.Graph().as_default(), plain_session() as session:
        modeling.BertModel(small, True, tf.zeros(ids[1], ids[0]))
        tf.get_variable("unrelated", [2])
        values = random_values(tf.global_variables())
        load(session, values)
        tf.train.Saver().save(session, path)
    with tf.Graph().as_default(), plain_session() as session:
        modeling.BertModel(large, True, tf.zeros(ids[1], ids[0]))
        assignment, initialized = modeling.get_assignment_map_from_checkpoint(
            tf.trainable_variables(), path)
        assert dict(assignment) == {name: name for name in values if name != "unrelated"}
        assert initialized == {name + suffix: 1 for name in assignment for suffix in ("", ":0")}
        tf.train.init_from_checkpoint(path, assignment)
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            loaded = np.array_equal(session.run(variable), values.get(variable.op.name))
            assert loaded == (variable.op.name in assignment)


# --- Configs and errors ------------------------------------------------------------------


def test_a_config_survives_its_json_with_entries_of_others(tmp_path):
    entries = {**tiny_config().to_dict(), "directionality": "bidi"}
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(entries))
    config = modeling.BertConfig.from_json_file(str(path))
    assert config.to_dict() == entries
    assert json.loads(config.to_json_string()) == entries
    assert config.to_json_string().endswith("}\n")


@pytest.mark.parametrize("changes, part", [
    (dict(num_attention_heads=3), "hidden_size 16 is not a multiple of num_attention_heads 3"),
    (dict(hidden_act="swish"), "'swish'; choose from"),
    (dict(vocab_size=None), "vocab_size is None"),
    (dict(num_hidden_layers=0), "num_hidden_layers is 0"),
    (dict(intermediate_size=2.5), "intermediate_size is 2.5"),
    (dict(hidden_dropout_prob=1.0), "hidden_dropout_prob is 1.0"),
    (dict(max_position_embeddings=1), "longer than max_position_embeddings, 1. Their length is 2"),
])
def test_a_model_that_cannot_be_is_refused_in_one_line(changes, part):
    with tf.Graph().as_default(), pytest.raises(ValueError) as error:
        modeling.BertModel(tiny_config(**changes), True, tf.zeros([1, 2], tf.int32))
    assert part in str(error.value) and "\n" not in str(error.value)


def test_a_sequence_found_too_long_when_the_graph_runs_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_position_embeddings, 24"):
        evaluate(modeling.BertModel, tiny_config(), random_features(1, 25), known_shape=False)


@pytest.mark.parametrize("call, part", [
    (lambda: modeling.BertModel(tiny_config(), True, tf.zeros([2], tf.int32)), "has rank 1"),
    (lambda: modeling.get_shape_list(tf.zeros([2], name="ids"), [2, 3]), "'ids:0'"),
    (lambda: modeling.reshape_to_matrix(tf.zeros([2])), "at least rank 2"),
    (lambda: modeling.attention_layer(tf.zeros([2, 3]), tf.zeros([2, 3])), "batch_size"),
    (lambda: modeling.attention_layer(tf.zeros([2, 3]), tf.zeros([2, 3, 4])), "must match"),
    (lambda: modeling.transformer_model(tf.zeros([1, 2, 8]), hidden_size=12), "8 wide"),
    (lambda: modeling.embedding_postprocessor(tf.zeros([1, 2, 8]), use_token_type=True),
     "token_type_ids is None"),
])
def test_a_tensor_that_does_not_fit_is_refused(call, part):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=part):
        call()


def test_shapes_are_numbers_where_known_and_tensors_elsewhere():
    with tf.Graph().as_default(), plain_session() as session:
        tensor = tf.placeholder(tf.float32, [None, 3, None])
        first, second, third = modeling.get_shape_list(tensor)
        assert second == 3
        matrix = modeling.reshape_to_matrix(tensor)
        back = modeling.reshape_from_matrix(matrix, [first, second, third])
        value = np.arange(24.0).reshape([2, 3, 4])
        np.testing.assert_array_equal(session.run(back, {tensor: value}), value)
        assert session.run([first, third, tf.shape(matrix)], {tensor: value})[2].tolist() == [6, 4]


def test_activations_are_found_by_name():
    assert modeling.get_activation("linear") is None
    assert modeling.get_activation("") is None and modeling.get_activation(None) is None
    assert modeling.get_activation("GELU") is modeling.gelu
    assert modeling.get_activation(math.sin) is math.sin

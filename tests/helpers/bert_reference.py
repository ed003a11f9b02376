"""A toy BERT, what it takes to run it, and the papers' formulas in NumPy to compare it with."""

import math

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from conftest import plain_session

VOCAB, LENGTH, BATCH = 37, 7, 3


def tiny_config(**changes):
    settings = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=3, num_attention_heads=4,
                    intermediate_size=20, max_position_embeddings=24, type_vocab_size=3)
    settings.update(changes)
    return modeling.BertConfig(**settings)


def random_features(batch=BATCH, length=LENGTH, seed=0):
    rng = np.random.RandomState(seed)
    real = rng.randint(1, length + 1, size=[batch, 1])
    return {"input_ids": rng.randint(VOCAB, size=[batch, length]),
            "input_mask": (np.arange(length) < real).astype(int),
            "token_type_ids": rng.randint(3, size=[batch, length])}


def random_values(variables, seed=1):
    """Values that leave no weight, bias or scale at its trivial initial value."""
    rng = np.random.RandomState(seed)
    return {v.op.name: rng.normal(1.0 if "gamma" in v.op.name else 0.0, 0.3,
                                  v.shape.as_list()).astype(np.float32) for v in variables}


def placeholders(features, known_shape=True):
    return {name: tf.placeholder(tf.int32, value.shape if known_shape else [None, None])
            for name, value in features.items()}


def load(session, values):
    for variable in tf.global_variables():
        variable.load(values[variable.op.name], session)


def evaluate(model_class, config, features, *, is_training=False, known_shape=True,
             values=None, gradients=False, rewritten=False, **options):
    """Outputs by name, of variables that depend on their names and shapes alone.

    `rewritten`: TensorFlow may rewrite the graph, as it does by default.
    """
    with tf.Graph().as_default(), (tf.Session() if rewritten else plain_session()) as session:
        inputs = placeholders(features, known_shape)
        model = model_class(config, is_training, **inputs, **options)
        outputs = {"pooled": model.get_pooled_output(), "sequence": model.get_sequence_output(),
                   "embedding": model.get_embedding_output()}
        for index, layer in enumerate(model.get_all_encoder_layers()):
            outputs[f"layer_{index}"] = layer
        if gradients:
            weighting = tf.constant(np.random.RandomState(2).normal(size=[config.hidden_size]),
                                    tf.float32)
            loss = (tf.reduce_sum(tf.sin(model.get_sequence_output() * weighting))
                    + tf.reduce_sum(model.get_pooled_output() * weighting))
            for variable, gradient in zip(tf.trainable_variables(),
                                          tf.gradients(loss, tf.trainable_variables())):
                outputs["d " + variable.op.name] = tf.convert_to_tensor(gradient)
        load(session, values or random_values(tf.global_variables()))
        return session.run(outputs, {inputs[name]: features[name] for name in features})


def assert_close(actual, expected, tolerance=1e-5):
    """To `tolerance`, or that part of the largest value: a key's bias has noise for a gradient."""
    assert sorted(actual) == sorted(expected)
    largest_gradient = max([1.0] + [np.abs(expected[name]).max()
                                    for name in expected if name.startswith("d ")])
    for name in expected:
        scale = largest_gradient if name.startswith("d ") else max(1, np.abs(expected[name]).max())
        np.testing.assert_allclose(actual[name] / scale, expected[name] / scale, rtol=0,
                                   atol=tolerance, err_msg=name)


ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
}


def reference_bert(values, config, input_ids, input_mask, token_type_ids, scope="bert"):
    """The papers' formulas, word for word, in float64."""
    def weight(name):
        return values[f"{scope}/{name}"].astype(np.float64)

    def dense(x, name):
        return x @ weight(name + "/kernel") + weight(name + "/bias")

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True))
        return centred / deviation * weight(name + "/gamma") + weight(name + "/beta")

    def softmax(x):
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    length = input_ids.shape[1]
    x = norm(weight("embeddings/word_embeddings")[input_ids]
             + weight("embeddings/token_type_embeddings")[token_type_ids]
             + weight("embeddings/position_embeddings")[:length], "embeddings/LayerNorm")
    outputs = {"embedding": x}
    heads = config.num_attention_heads
    for index in range(config.num_hidden_layers):
        layer = f"encoder/layer_{index}"
        query, key, value = (
            np.stack(np.split(dense(x, f"{layer}/attention/self/{name}"), heads, -1), 1)
            for name in ("query", "key", "value"))
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(config.hidden_size // heads)
        scores = scores - 10000.0 * (1 - input_mask[:, None, None, :])
        context = np.concatenate(np.moveaxis(softmax(scores) @ value, 1, 0), -1)
        attention = norm(x + dense(context, f"{layer}/attention/output/dense"),
                         f"{layer}/attention/output/LayerNorm")
        inner = ACTIVATIONS[config.hidden_act](dense(attention, f"{layer}/intermediate/dense"))
        x = norm(attention + dense(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
        outputs[f"layer_{index}"] = x
    outputs["sequence"] = x
    outputs["pooled"] = np.tanh(dense(x[:, 0], "pooler/dense"))
    return outputs


def variable_shapes(config, scope=None):
    with tf.Graph().as_default():
        modeling.BertModel(config, True, tf.zeros([1, 2], tf.int32), scope=scope)
        return {v.op.name: v.shape.as_list() for v in tf.global_variables()}


def values_for(config, scope=None):
    rng = np.random.RandomState(3)
    return {name: rng.normal(1.0 if "gamma" in name else 0.0, 0.3, shape).astype(np.float32)
            for name, shape in variable_shapes(config, scope).items()}

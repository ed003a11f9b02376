"""Proves that `modeling` is BERT: equal to a NumPy transcription of the papers, and to Google's.

Where Google's package is installed (TensorFlow 1.15), outputs and gradients are compared with
its own, and its own test file runs on ours. Everywhere: variable names, shapes known late or
early, dropout, two replicas against one, and what is refused.
"""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling

ROOT = pathlib.Path(modeling.__file__).parent
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
             values=None, gradients=False, **options):
    """Outputs by name, of variables that depend on their names and shapes alone."""
    with tf.Graph().as_default(), tf.Session() as session:
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


# --- The reference in NumPy --------------------------------------------------------------

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


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_outputs_are_those_of_the_papers_formulas(activation):
    config, features = tiny_config(hidden_act=activation), random_features()
    values = values_for(config)
    actual = evaluate(modeling.BertModel, config, features, values=values)
    assert_close(actual, reference_bert(values, config, **features))


@pytest.mark.parametrize("known_shape", [True, False])
@pytest.mark.parametrize("length", [1, 8, 24])
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


@pytest.mark.parametrize("activation", ["gelu", "gelu_erf"])
def test_gradients_are_the_slopes_of_the_loss(activation):
    """Against central differences of the NumPy reference, along a random direction."""
    config, features = tiny_config(hidden_act=activation), random_features()
    values = values_for(config)
    actual = evaluate(modeling.BertModel, config, features, values=values, gradients=True)
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


def test_a_missing_mask_attends_to_all_and_missing_types_are_zero():
    config, features = tiny_config(), random_features()
    plain = evaluate(modeling.BertModel, config, {"input_ids": features["input_ids"]})
    explicit = evaluate(modeling.BertModel, config, {
        "input_ids": features["input_ids"], "input_mask": np.ones([BATCH, LENGTH], int),
        "token_type_ids": np.zeros([BATCH, LENGTH], int)})
    assert_close(plain, explicit, 0)


# --- Google's package --------------------------------------------------------------------


@pytest.fixture(name="google")
def google_modeling():
    return pytest.importorskip("bert.modeling")


def test_googles_own_tests_pass(tmp_path):
    pytest.importorskip("bert")
    package = pathlib.Path(importlib.util.find_spec("bert").origin).parent
    source = (package / "modeling_test.py").read_text()
    assert source.count("from bert import modeling") == 1
    path = tmp_path / "modeling_test.py"
    path.write_text(source.replace("from bert import modeling", "import modeling"))
    subprocess.run([sys.executable, str(path)], cwd=str(tmp_path), check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})


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
        with tf.Graph().as_default(), tf.Session() as session:
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
        with tf.Graph().as_default(), tf.Session() as session:
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
        with tf.Graph().as_default(), tf.Session() as session:
            words, _ = module.embedding_lookup(tf.constant(ids), VOCAB, 4)
            output = module.embedding_postprocessor(words, use_position_embeddings=False,
                                                    dropout_prob=0.0)
            load(session, random_values(tf.global_variables()))
            return session.run({"words": words, "output": output})

    assert_close(embed(modeling), embed(google))


def test_attention_mask_is_googles(google):
    def mask(module):
        with tf.Graph().as_default(), tf.Session() as session:
            return session.run(module.create_attention_mask_from_input_mask(
                tf.zeros([2, 3, 4]), tf.constant([[1, 0], [1, 1]])))

    np.testing.assert_array_equal(mask(modeling), mask(google))


# --- Variables and checkpoints -----------------------------------------------------------

DENSE = {"attention/self/query": (16, 16), "attention/self/key": (16, 16),
         "attention/self/value": (16, 16), "attention/output/dense": (16, 16),
         "intermediate/dense": (16, 20), "output/dense": (20, 16)}


def golden_variables(layers):
    """Names and shapes of released BERT checkpoints, at toy size."""
    golden = {"bert/embeddings/word_embeddings": [37, 16],
              "bert/embeddings/token_type_embeddings": [3, 16],
              "bert/embeddings/position_embeddings": [24, 16],
              "bert/embeddings/LayerNorm/beta": [16], "bert/embeddings/LayerNorm/gamma": [16],
              "bert/pooler/dense/kernel": [16, 16], "bert/pooler/dense/bias": [16]}
    for index in range(layers):
        prefix = f"bert/encoder/layer_{index}/"
        for name, (inputs, outputs) in DENSE.items():
            golden[f"{prefix}{name}/kernel"] = [inputs, outputs]
            golden[f"{prefix}{name}/bias"] = [outputs]
        for name in ("attention/output/LayerNorm", "output/LayerNorm"):
            golden[f"{prefix}{name}/beta"] = golden[f"{prefix}{name}/gamma"] = [16]
    return golden


def test_variables_have_the_names_and_shapes_of_released_checkpoints():
    assert variable_shapes(tiny_config()) == golden_variables(3)


def test_initial_values_are_ones_zeros_and_truncated_normal():
    config = tiny_config(vocab_size=2000, initializer_range=0.5)
    with tf.Graph().as_default(), tf.Session() as session:
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


def test_two_models_in_one_scope_share_their_variables():
    with tf.Graph().as_default():
        for _ in range(2):
            with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
                modeling.BertModel(tiny_config(), True, tf.zeros([1, 2], tf.int32), scope="bert")
        assert {v.op.name for v in tf.global_variables()} == set(golden_variables(3))


def test_a_checkpoint_initialises_what_it_holds_and_no_more(tmp_path):
    path = str(tmp_path / "model.ckpt")
    small, large = tiny_config(num_hidden_layers=1), tiny_config(num_hidden_layers=2)
    ids = tf.int32, [1, 2]
    with tf.Graph().as_default(), tf.Session() as session:
        modeling.BertModel(small, True, tf.zeros(ids[1], ids[0]))
        tf.get_variable("unrelated", [2])
        values = random_values(tf.global_variables())
        load(session, values)
        tf.train.Saver().save(session, path)
    with tf.Graph().as_default(), tf.Session() as session:
        modeling.BertModel(large, True, tf.zeros(ids[1], ids[0]))
        assignment, initialized = modeling.get_assignment_map_from_checkpoint(
            tf.trainable_variables(), path)
        assert dict(assignment) == {name: name for name in golden_variables(1)}
        assert initialized == {name + suffix: 1 for name in assignment for suffix in ("", ":0")}
        tf.train.init_from_checkpoint(path, assignment)
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            loaded = np.array_equal(session.run(variable), values.get(variable.op.name))
            assert loaded == (variable.op.name in assignment)


# --- Dropout -----------------------------------------------------------------------------


def run_dropout(shape, prob, seed):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(modeling.dropout(tf.ones(shape), prob,
                                            dropout_seed=tf.constant(seed)))


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.003])
def test_dropout_keeps_the_right_share_and_the_mean(prob):
    values = run_dropout([1000, 1001], prob, [5, 6])
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
    with tf.Graph().as_default(), tf.Session() as session:
        ones = tf.ones([50, 50])
        output = modeling.dropout(ones, 0.3, dropout_seed=tf.constant([1, 2]))
        dropped, gradient = session.run([output, tf.gradients(output, ones)[0]])
        np.testing.assert_array_equal(dropped, gradient)


def train_outputs(seed, config=None, steps=1, graph_seed=None):
    """Outputs in training of a model whose inputs and weights are always the same."""
    config, features = config or tiny_config(), random_features()
    with tf.Graph().as_default(), tf.Session() as session:
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


def test_nothing_drops_outside_training():
    features = random_features()
    values = values_for(tiny_config())
    outputs = evaluate(modeling.BertModel, tiny_config(), features, values=values)
    assert_close(outputs, reference_bert(values, tiny_config(), **features))


def test_each_place_draws_a_mask_of_its_own():
    with tf.Graph().as_default(), tf.Session() as session:
        places = session.run(modeling._seeds_of_places([5, 3], tf.constant([1, 2]), [0.0, 0.1]))
        fewer = session.run(modeling._seeds_of_places([4, 3], tf.constant([1, 2]), [0.1, 0.0]))
    assert len(np.unique(places.reshape([15, 2]), axis=0)) == 15
    np.testing.assert_array_equal(places[:4], fewer)


# --- Replicas ----------------------------------------------------------------------------

REPLICAS_PROGRAM = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
import modeling

replicas, directory, checkpoint, path = int(sys.argv[1]), *sys.argv[2:]
devices = None
session_config = tf.ConfigProto(device_count={"CPU": 2})
if not tf.__version__.startswith("1."):
    tf.disable_v2_behavior()
    import tensorflow
    tensorflow.config.set_logical_device_configuration(
        tensorflow.config.list_physical_devices("CPU")[0],
        [tensorflow.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
config = modeling.BertConfig.from_dict(json.loads(path))
rng = np.random.RandomState(0)
ids = rng.randint(config.vocab_size, size=[20, 4, 6]).astype(np.int32)

def input_fn():
    data = tf.data.Dataset.from_tensor_slices(ids.reshape([-1, 4 // replicas, 6]))
    return data.map(lambda x: ({"ids": x}, x[:, 0] % 2))

def model_fn(features, labels, mode):
    model = modeling.BertModel(config, True, features["ids"])
    logits = tf.layers.dense(model.get_pooled_output(), 2,
                             kernel_initializer=tf.zeros_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    assignment, _ = modeling.get_assignment_map_from_checkpoint(
        tf.trainable_variables(), checkpoint)
    assert len(assignment) == 7 + 16 * config.num_hidden_layers
    tf.train.init_from_checkpoint(checkpoint, assignment)
    train_op = tf.train.GradientDescentOptimizer(0.05).minimize(
        loss, global_step=tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

run_config = tf.estimator.RunConfig(train_distribute=strategy, session_config=session_config)
estimator = tf.estimator.Estimator(model_fn, directory, run_config)
estimator.train(input_fn, max_steps=10)
np.savez(directory + "/final.npz", **{name: estimator.get_variable_value(name)
                                      for name in estimator.get_variable_names()})
"""


def train_with_replicas(replicas, config, directory, checkpoint):
    subprocess.run([sys.executable, "-c", REPLICAS_PROGRAM, str(replicas), str(directory),
                    checkpoint, config.to_json_string()], check=True, cwd=str(ROOT),
                   env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    return dict(np.load(str(directory / "final.npz")))


def test_two_replicas_of_2_train_like_one_of_4(tmp_path):
    config = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    checkpoint = str(tmp_path / "initial.ckpt")
    with tf.Graph().as_default(), tf.Session() as session:
        modeling.BertModel(config, True, tf.zeros([1, 2], tf.int32))
        initial = random_values(tf.global_variables())
        load(session, initial)
        tf.train.Saver().save(session, checkpoint)
    one, two = (train_with_replicas(n, config, tmp_path / str(n), checkpoint) for n in (1, 2))
    assert one["global_step"] == two["global_step"] == 10
    assert_close(two, one)
    moved = [name for name in initial if not np.allclose(one[name], initial[name], atol=1e-4)]
    assert len(moved) > len(initial) / 2


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
    with tf.Graph().as_default(), tf.Session() as session:
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

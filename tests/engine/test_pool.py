"""A pooled loss over replicas and micro-batches has the gradient of one batch."""

from typing import Dict, List

import numpy as np
import pytest

from conftest import checkpoint_values, cpu_devices
from engine.data.batches import Source
from engine.data.plan import TrainingPlan
from engine.model import Mode, Outputs, Pooled, Training
from engine.training import loop
from trainings import recorded, settings

import tensorflow.compat.v1 as tf

EXAMPLES, TEXTS, LENGTH, WORDS, SIZE, TEMPERATURE = 64, 2, 8, 50, 6, 0.2
GLOBAL_BATCH, SEED = 16, 7
REPLICAS, MICRO_BATCHES = 2, 4


def source() -> Source:
    ids = np.random.RandomState(3).randint(1, WORDS, [EXAMPLES, TEXTS, LENGTH]).astype(np.int32)
    return Source(np.full(EXAMPLES, LENGTH), lambda indices, *lengths: {"ids": ids[indices]}, LENGTH,
                  encoded=np.full([EXAMPLES, TEXTS], LENGTH))


def forward_of(dropout: float):
    def forward(features: Dict[str, tf.Tensor], mode) -> Outputs:
        words = tf.get_variable("words", [WORDS, SIZE], tf.float32,
                                tf.random_normal_initializer(seed=1))
        kernel = tf.get_variable("kernel", [SIZE, SIZE], tf.float32,
                                 tf.random_normal_initializer(seed=2))
        ids = tf.ensure_shape(features["ids"], [None, TEXTS, LENGTH])
        values = tf.gather(words, ids)
        if dropout:
            kept = tf.random.stateless_uniform(tf.shape(values), mode.dropout_seed) >= dropout
            values = values * tf.cast(kept, tf.float32) / (1 - dropout)
        vectors = tf.nn.l2_normalize(
            tf.einsum("bts,sd->btd", tf.reduce_mean(values, 2), kernel), -1, epsilon=0.0)
        rows = tf.reshape(vectors, [-1, TEXTS * SIZE])
        rows.set_shape([features["ids"].shape[0], TEXTS * SIZE])
        return Outputs(None, {}, Pooled(rows, loss))
    return forward


def loss(pool: tf.Tensor) -> tf.Tensor:
    """Ranks each text's own answer before the answers of all others in the pool."""
    vectors = tf.reshape(pool, [-1, TEXTS, SIZE])
    scores = tf.matmul(vectors[:, 0], vectors[:, 1], transpose_b=True) / TEMPERATURE
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.range(pool.shape.as_list()[0]), logits=scores))


def train(output_dir, num_replicas: int, micro_batches: int, dropout: float, **changes) -> None:
    records = source()
    loop.take_steps(loop.Run(
        {}, settings(output_dir, GLOBAL_BATCH // num_replicas // micro_batches, num_train_steps=1,
                     gradient_accumulation_steps=micro_batches, **changes),
        cpu_devices(num_replicas), Training(EXAMPLES, "", forward_of(dropout), lambda: records)))


def in_one_graph(dropout: float, initial: Dict[str, np.ndarray]) -> List[np.ndarray]:
    """The loss and its gradients, with the masks of each replica and micro-batch."""
    forward, parts = forward_of(dropout), REPLICAS * MICRO_BATCHES
    indices = TrainingPlan(source().lengths, GLOBAL_BATCH, SEED).global_batch(0)
    with tf.Graph().as_default(), tf.Session() as session:
        rows = []
        for part, of_part in enumerate(np.split(indices, parts)):
            features = source().fetch(of_part, LENGTH)
            replica, micro_batch = divmod(part, MICRO_BATCHES)
            seed = tf.constant([SEED * 2**20 + replica, micro_batch * 2**40], tf.int64)
            with tf.variable_scope(tf.get_variable_scope(), reuse=part > 0):
                rows.append(forward(dict(zip(features, map(tf.constant, features.values()))),
                                    Mode(True, seed)).pooled.vectors)
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        of_all = loss(tf.concat(rows, 0))
        gradients = tf.gradients(of_all, [variables["words"], variables["kernel"]])
        for name, variable in variables.items():
            variable.load(initial[name], session)
        return session.run([of_all, *map(tf.convert_to_tensor, gradients)])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_gradient_is_that_of_one_batch_with_the_same_masks(dropout, tmp_path, monkeypatch):
    train(tmp_path / "initial", 1, 1, dropout, learning_rate=1e-12)
    expected = in_one_graph(dropout, checkpoint_values(str(tmp_path / "initial")))

    losses, norms = recorded(monkeypatch)
    train(tmp_path / "out", REPLICAS, MICRO_BATCHES, dropout, warmup_steps=0)
    values = checkpoint_values(str(tmp_path / "out"))
    np.testing.assert_allclose(losses[0], expected[0], rtol=1e-5)
    for name, gradient in zip(("words", "kernel"), expected[1:]):
        moment = gradient * 0.1 / max(1.0, norms[0])  # a tenth of the clipped gradient
        np.testing.assert_allclose(values[f"{name}/adam_m"], moment, atol=1e-6)
        assert np.abs(moment).max() > 1e-3

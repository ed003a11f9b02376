"""A model of pairs whose candidates are shared by all examples of a step, and its gradient in NumPy.

An example has an anchor, a positive and a hard negative. The loss ranks the positive of each anchor
before all other candidates; a candidate with the anchor's own positive's text is no negative.
"""

from typing import Dict, NamedTuple

import numpy as np

from conftest import cpu_devices
from engine.data.batches import Source
from engine.model import Outputs, Pooled, Training
from engine.training import loop
from trainings import settings

import tensorflow.compat.v1 as tf

EXAMPLES, TEXTS, LENGTH, WORDS, SIZE, TEMPERATURE = 64, 3, 8, 50, 6, 0.2
GLOBAL_BATCH = 16


def ids_of_examples() -> np.ndarray:
    """Words [n, TEXTS, LENGTH] of the texts. Few positives are different: batches have equal ones."""
    random = np.random.RandomState(3)
    ids = random.randint(1, WORDS, [EXAMPLES, TEXTS, LENGTH])
    ids[:, 1] = ids[random.randint(0, 12, EXAMPLES), 1]
    return ids.astype(np.int32)


def keys_of(ids: np.ndarray) -> np.ndarray:
    """The hash of each text [..., LENGTH]."""
    _, keys = np.unique(ids.reshape(-1, LENGTH), axis=0, return_inverse=True)
    return keys.reshape(ids.shape[:-1]).astype(np.float32)


def source() -> Source:
    ids = ids_of_examples()
    keys = keys_of(ids)
    return Source(np.full(EXAMPLES, LENGTH),
                  lambda indices, *lengths: {"ids": ids[indices], "keys": keys[indices]}, LENGTH,
                  encoded=np.full([EXAMPLES, TEXTS], LENGTH))


def forward_of(dropout: float = 0.0):
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
        keys = tf.ensure_shape(features["keys"], [None, TEXTS])
        rows = tf.concat([tf.reshape(vectors, [-1, TEXTS * SIZE]), keys], 1)
        rows.set_shape([features["ids"].shape[0], TEXTS * SIZE + TEXTS])
        return Outputs(None, {}, Pooled(rows, loss))
    return forward


def loss(pool: tf.Tensor) -> tf.Tensor:
    """The mean over the anchors of the pool."""
    vectors = tf.reshape(pool[:, :TEXTS * SIZE], [-1, TEXTS, SIZE])
    keys, count = pool[:, TEXTS * SIZE:], pool.shape.as_list()[0]
    candidates = tf.concat([vectors[:, text] for text in range(1, TEXTS)], 0)
    candidate_keys = tf.concat([keys[:, text] for text in range(1, TEXTS)], 0)
    scores = tf.matmul(vectors[:, 0], candidates, transpose_b=True) / TEMPERATURE
    own = tf.eye(count, (TEXTS - 1) * count, dtype=tf.bool)
    equal = tf.equal(keys[:, 1:2], candidate_keys) & ~own
    scores = tf.where(equal, tf.fill(tf.shape(scores), -1e9), scores)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.range(count), logits=scores))


class Expected(NamedTuple):
    """The loss of a step and its gradients."""
    loss: float
    words: np.ndarray
    kernel: np.ndarray


def in_numpy(words: np.ndarray, kernel: np.ndarray, indices: np.ndarray) -> Expected:
    """Derived by hand, in float64."""
    ids = ids_of_examples()[indices]
    keys, count = keys_of(ids_of_examples())[indices], len(indices)
    words, kernel = words.astype(np.float64), kernel.astype(np.float64)
    means = words[ids].mean(2)
    raw = means @ kernel
    norms = np.linalg.norm(raw, axis=-1, keepdims=True)
    unit = raw / norms
    candidates = np.concatenate([unit[:, text] for text in range(1, TEXTS)])
    candidate_keys = np.concatenate([keys[:, text] for text in range(1, TEXTS)])
    scores = unit[:, 0] @ candidates.T / TEMPERATURE
    own = np.eye(count, len(candidates), dtype=bool)
    scores[(keys[:, 1:2] == candidate_keys) & ~own] = -np.inf
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    of_scores = (shares - own) / count / TEMPERATURE
    of_unit = np.empty_like(unit)
    of_unit[:, 0] = of_scores @ candidates
    of_candidates = of_scores.T @ unit[:, 0]
    for text in range(1, TEXTS):
        of_unit[:, text] = of_candidates[(text - 1) * count:text * count]
    of_raw = (of_unit - unit * (unit * of_unit).sum(-1, keepdims=True)) / norms
    of_words = np.zeros_like(words)
    np.add.at(of_words, ids, ((of_raw @ kernel.T) / LENGTH)[:, :, np.newaxis])
    return Expected(-np.log(shares[own[:, :len(candidates)]]).mean(), of_words,
                    np.einsum("nts,ntd->sd", means, of_raw))


def run_of(output_dir, devices, micro_batches: int = 1, dropout: float = 0.0, **changes) -> loop.Run:
    records = source()
    return loop.Run(
        {}, settings(output_dir, GLOBAL_BATCH // devices.num_replicas // micro_batches,
                     gradient_accumulation_steps=micro_batches, **changes),
        devices, Training(EXAMPLES, "", forward_of(dropout), lambda: records))


def train(output_dir, num_replicas: int, micro_batches: int = 1, **more) -> None:
    loop.take_steps(run_of(output_dir, cpu_devices(num_replicas), micro_batches, **more))

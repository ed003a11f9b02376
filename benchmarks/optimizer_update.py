"""The optimizer's update alone, seconds: ours and Google's, in turn, in one run.

  python -m benchmarks.optimizer_update

The variables of BERT-base, random gradients that are already in memory, that of the word
embeddings for 32 * 128 tokens; clipping included: ours is part of the update, Google's the
`tf.clip_by_global_norm` of its create_optimizer. TensorFlow 1.15, `bert-tensorflow==1.0.1`.
"""

import argparse
import sys
import time
from typing import Callable, List

import numpy as np

from benchmarks import report
from engine.devices import runtime

import tensorflow.compat.v1 as tf

import multigpu_optimizer
from bert import optimization as googles_optimization
from modeling import BertConfig, BertModel

EXCLUDED = ["LayerNorm", "layer_norm", "bias"]
UPDATES = 3
NUM_TOKENS = 32 * 128


def our_update(pairs) -> tf.Operation:
    optimizer = multigpu_optimizer.AdamWeightDecayOptimizer(
        1e-5, weight_decay_rate=0.01, exclude_from_weight_decay=EXCLUDED, clip_norm=1.0)
    return optimizer.apply_gradients(pairs)


def googles_update(pairs) -> tf.Operation:
    optimizer = googles_optimization.AdamWeightDecayOptimizer(
        1e-5, weight_decay_rate=0.01, exclude_from_weight_decay=EXCLUDED)
    gradients, variables = zip(*pairs)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    return optimizer.apply_gradients(zip(clipped, variables))


def _gradient_of(variable: tf.Variable):
    is_sparse = "word_embeddings" in variable.name
    shape = [NUM_TOKENS, variable.shape[1]] if is_sparse else variable.shape
    values = tf.convert_to_tensor(tf.get_variable(
        f"{variable.op.name}/gradient", shape, trainable=False,
        initializer=tf.random_normal_initializer()))
    if not is_sparse:
        return values
    indices = np.random.RandomState(0).randint(0, variable.shape[0], NUM_TOKENS)
    return tf.IndexedSlices(values, tf.constant(indices), tf.shape(variable))


class Update:
    """One optimizer over BERT-base, in a graph and a session as its program has them."""

    def __init__(self, update: Callable[..., tf.Operation], config: tf.ConfigProto):
        with tf.Graph().as_default():
            BertModel(BertConfig(vocab_size=30522), False, tf.zeros([1, 8], tf.int32))
            variables = tf.trainable_variables()
            self._update = update([(_gradient_of(variable), variable) for variable in variables])
            self._session = tf.Session(config=config)
            self._session.run(tf.global_variables_initializer())
            self._session.run(self._update)

    def seconds(self) -> float:
        start = time.time()
        for _ in range(UPDATES):
            self._session.run(self._update)
        return (time.time() - start) / UPDATES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    args = parser.parse_args()
    ours = Update(our_update, runtime.session_config())
    theirs = Update(googles_update, tf.ConfigProto())
    pairs: List[tuple] = [(theirs.seconds(), ours.seconds()) for _ in range(args.pairs)]
    theirs_seconds, our_seconds = zip(*pairs)
    report.append(
        "The optimizer's update alone, BERT-base: seconds (median)",
        [{"ours": f"{np.median(our_seconds):.3f}",
          "Google's": f"{np.median(theirs_seconds):.3f}",
          "how many times as fast": report.ratios(theirs_seconds, our_seconds)}],
        command="python -m benchmarks.optimizer_update",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

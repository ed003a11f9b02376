"""The peer for several replicas: Google's modeling under MirroredStrategy, the usual recipe.

What the tutorials arrive at: Estimator in the place of TPUEstimator, MirroredStrategy in
its RunConfig, and an AdamW that subclasses `tf.train.Optimizer` (mirrored m and v, the
formula written out, gradients clipped in each replica). Random input of the right shape.
Prints one JSON line with the seconds from its start to the end of step 1.

  python -m benchmarks.peers.mirrored_recipe --num_replicas=8
"""

import argparse
import json
import os
import re
import tempfile
import time

START = time.time()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from bert import modeling  # noqa: E402

from benchmarks.startup import CONFIG  # noqa: E402


class AdamW(tf.train.Optimizer):
    """BERT's update for any number of replicas, in the way of the base class."""

    def __init__(self, learning_rate):
        super(AdamW, self).__init__(False, "AdamW")
        self._learning_rate = learning_rate

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _resource_apply_dense(self, grad, var):
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        next_m = 0.9 * m + 0.1 * grad
        next_v = 0.999 * v + 0.001 * tf.square(grad)
        update = next_m / (tf.sqrt(next_v) + 1e-6)
        if not re.search("LayerNorm|layer_norm|bias", var.name):
            update += 0.01 * var
        return tf.group(var.assign_sub(self._learning_rate * update), m.assign(next_m),
                        v.assign(next_v))

    def _resource_apply_sparse(self, grad, var, indices):
        rows = tf.expand_dims(tf.cast(indices, tf.int32), 1)
        return self._resource_apply_dense(tf.scatter_nd(rows, grad, tf.shape(var)), var)


def model_fn_of(config):
    def model_fn(features, labels, mode):
        model = modeling.BertModel(
            config, True, features["input_ids"], features["input_mask"], features["segment_ids"])
        logits = tf.layers.dense(model.get_pooled_output(), 2)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        step = tf.train.get_or_create_global_step()
        rate = tf.train.polynomial_decay(5e-5, step, 1000, end_learning_rate=0.0)
        optimizer = AdamW(rate)
        gradients, variables = zip(*optimizer.compute_gradients(loss))
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    return model_fn


def input_fn_of(batch_size, length, vocab_size):
    def input_fn():
        random = np.random.RandomState(0)
        ids = random.randint(0, vocab_size, [64 * batch_size, length]).astype(np.int32)
        features = {"input_ids": ids, "input_mask": np.ones_like(ids),
                    "segment_ids": np.zeros_like(ids)}
        labels = random.randint(0, 2, len(ids)).astype(np.int32)
        return tf.data.Dataset.from_tensor_slices((features, labels)).batch(
            batch_size, drop_remainder=True).repeat()
    return input_fn


class FirstStep(tf.train.SessionRunHook):
    """The time at which step 1 ended."""
    ended = None

    def after_run(self, run_context, run_values):
        self.ended = self.ended or time.time()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_replicas", type=int, required=True)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--length", type=int, default=32)
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    config = modeling.BertConfig.from_dict(CONFIG)
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(args.num_replicas)])
    first_step = FirstStep()
    with tempfile.TemporaryDirectory() as directory:
        estimator = tf.estimator.Estimator(model_fn_of(config), config=tf.estimator.RunConfig(
            model_dir=directory, train_distribute=strategy,
            session_config=tf.ConfigProto(device_count={"CPU": args.num_replicas},
                                          allow_soft_placement=True)))
        estimator.train(input_fn_of(args.batch_size, args.length, config.vocab_size),
                        max_steps=1, hooks=[first_step])
    print(json.dumps({"rate": first_step.ended - START}))


if __name__ == "__main__":
    main()

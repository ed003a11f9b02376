"""The model: a classifier with two classes, whether a phrase fits a slot or not.

With both objectives the score of a phrase is the log-odds, the difference of the two logits: a
model trained with one objective can be trained further with the other.
"""

from typing import Dict

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import classifier
from engine.model import Forward, Mode, Outputs

NUM_OUTPUTS = 2
_LEAST = -1e9  # log-odds of padding


def pairwise(config: modeling.BertConfig) -> Forward:
    """Cross-entropy of each pair; see `classifier.forward_of`."""
    return classifier.forward_of(config, NUM_OUTPUTS)


def listwise(config: modeling.BertConfig) -> Forward:
    """Cross-entropy of a softmax over each slot's phrases; the first phrase is the right one.

    Its features are those of `data.ListwiseSet`.
    """
    score_pairs = pairwise(config)

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        num_slots, num_phrases, length = tf.unstack(tf.shape(features["input_ids"]))
        flat = {name: tf.reshape(features[name], [num_slots * num_phrases, length])
                for name in ("input_ids", "input_mask", "segment_ids")}
        logits = score_pairs(flat, mode).predictions["logits"]
        odds = tf.reshape(logits[:, 1] - logits[:, 0], [num_slots, num_phrases])
        # Counted in floats: a range of integers would be compared in the host's memory.
        position = tf.cumsum(tf.ones_like(odds), axis=1)  # from 1
        is_there = position <= tf.cast(features["num_phrases"], tf.float32)[:, tf.newaxis]
        odds = tf.where(is_there, odds, tf.fill(tf.shape(odds), _LEAST))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.zeros([num_slots], tf.int64), logits=odds))  # int32 is kept in host memory
        return Outputs(loss=loss, predictions={"logits": odds})
    return forward


def log_odds(logits: np.ndarray) -> np.ndarray:
    """The score of each pair, [n], from its logits, [n, NUM_OUTPUTS]."""
    return logits[:, 1] - logits[:, 0]

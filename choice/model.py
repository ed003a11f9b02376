"""BERT with a score for each choice of a question, and in training the cross-entropy over its choices."""

from typing import Dict

import tensorflow.compat.v1 as tf

import modeling
from encoder import classifier
from engine.model import Forward, Mode, Outputs

_LEAST = -1e9  # the score of padding


def scores_of(config: modeling.BertConfig, features: Dict[str, tf.Tensor], mode: Mode) -> tf.Tensor:
    """The scores of all choices, [b, choices], from input_ids, input_mask and segment_ids, int32 [b, choices, t].

    A choice without tokens is padding, and has the least score.
    """
    shape = tf.shape(features["input_ids"])
    of_choices = {name: tf.reshape(features[name], [-1, shape[2]])
                  for name in ("input_ids", "input_mask", "segment_ids")}
    logits = tf.reshape(
        classifier.forward_of(config, num_outputs=1)(of_choices, mode).predictions["logits"], shape[:2])
    return logits + _LEAST * (1.0 - tf.cast(features["input_mask"][:, :, 0], tf.float32))


def training_forward_of(config: modeling.BertConfig) -> Forward:
    """The loss of the features of `ChoiceSet.training_source`."""
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        scores = scores_of(config, features, mode)
        return Outputs(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=features["label_ids"], logits=scores)), {"scores": scores})
    return forward

"""The head on BERT's pooled output: class probabilities, or one number in a regression."""

from typing import Dict

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, num_outputs: int) -> Forward:
    """A model with `num_outputs` outputs: the number of classes, or 1 for a regression.

    Its features are input_ids, input_mask, segment_ids, int32 [b, t], and, for a loss,
    label_ids: one class, int32 [b]; several classes, float32 [b, classes]; or a number,
    float32 [b]. The loss is a mean.
    Its prediction is "logits", [b, num_outputs].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        pooled = bert.build(config, features, mode).get_pooled_output()
        logits = bert.scores(pooled, num_outputs, config, mode)
        loss = None
        if "label_ids" in features:
            loss = tf.reduce_mean(_losses(logits, features["label_ids"]))
        return Outputs(loss=loss, predictions={"logits": logits})
    return forward


def _losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross-entropy for classes; squared error for numbers; of the shape of the labels."""
    if labels.shape.ndims == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    if labels.dtype.is_floating:
        return tf.squared_difference(tf.squeeze(logits, -1), labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

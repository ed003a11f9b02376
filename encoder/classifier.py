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
    float32 [b]. The loss is a mean; label_weights, float32 of the shape of label_ids, weigh its
    parts, and should have a mean of 1 over the whole step.
    Its prediction is "logits", [b, num_outputs].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        pooled = bert.build(config, features, mode).get_pooled_output()
        logits = _logits(pooled, num_outputs,
                         config.hidden_dropout_prob if mode.is_training else 0.0,
                         mode.dropout_seed)
        loss = None
        if "label_ids" in features:
            losses = _losses(logits, features["label_ids"])
            if "label_weights" in features:
                losses *= features["label_weights"]
            loss = tf.reduce_mean(losses)
        return Outputs(loss=loss, predictions={"logits": logits})
    return forward


def _logits(pooled: tf.Tensor, num_outputs: int, dropout_prob: float, dropout_seed) -> tf.Tensor:
    hidden_size = pooled.shape.as_list()[-1]
    weights = tf.get_variable(
        "output_weights", [num_outputs, hidden_size],
        initializer=tf.truncated_normal_initializer(stddev=0.02))
    bias = tf.get_variable("output_bias", [num_outputs], initializer=tf.zeros_initializer())
    pooled = modeling.dropout(pooled, dropout_prob, dropout_seed=dropout_seed)
    return tf.nn.bias_add(tf.matmul(pooled, weights, transpose_b=True), bias)


def _losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross-entropy for classes; squared error for numbers; of the shape of the labels."""
    if labels.shape.ndims == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    if labels.dtype.is_floating:
        return tf.squared_difference(tf.squeeze(logits, -1), labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

"""The head on BERT's pooled output: class probabilities, or one number in a regression."""

from typing import Dict, Optional

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, num_outputs: int, *, mean: float = 0.0,
               deviation: float = 1.0) -> Forward:
    """A model with `num_outputs` outputs: the number of classes, or 1 for a regression.

    Its features are input_ids, input_mask, segment_ids, int32 [b, t], and, for a loss,
    label_ids: one class, int32 [b]; several classes, float32 [b, classes]; or a number,
    float32 [b]. The loss is a mean.
    Its prediction is "logits", [b, num_outputs].

    Args:
        mean, deviation: of a regression's labels. The output layer learns (label - mean) / deviation,
            so that labels of any unit take as many steps; the loss is that of these numbers, and the
            logits have the label's unit.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        pooled = bert.build(config, features, mode, reads_pooler=True).get_pooled_output()
        logits = bert.scores(pooled, num_outputs, config, mode)
        loss, labels = None, features.get("label_ids")
        if (mean, deviation) != (0.0, 1.0):
            labels = labels if labels is None else (labels - mean) / deviation
        if labels is not None:
            loss = tf.reduce_mean(_losses(logits, labels))
        if (mean, deviation) != (0.0, 1.0):
            logits = mean + deviation * logits
        return Outputs(loss=loss, predictions={"logits": logits})
    return forward


def states_of(config: modeling.BertConfig, positions: Optional[str] = None) -> Forward:
    """What an output layer reads: the prediction "features", the pooled output, [b, hidden size].

    Args:
        positions: a feature with positions of tokens, whose states are read instead, [b, p, hidden size].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        encoder = bert.build(config, features, mode, reads_pooler=positions is None)
        return Outputs(None, {"features": encoder.get_pooled_output() if positions is None
                              else encoder.get_sequence_output_at(features[positions])})
    return forward


def _losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross-entropy for classes; squared error for numbers; of the shape of the labels."""
    if labels.shape.ndims == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    if labels.dtype.is_floating:
        return tf.squared_difference(tf.squeeze(logits, -1), labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

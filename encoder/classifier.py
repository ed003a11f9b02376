"""The head on BERT's pooled output: class probabilities, or one number in a regression."""

from typing import Callable, Dict

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, num_outputs: int, label_smoothing: float = 0.0
               ) -> Forward:
    """A model with `num_outputs` outputs: the number of classes, or 1 for a regression.

    Its features are input_ids, input_mask, segment_ids, int32 [b, t], and, for a loss,
    label_ids: one class, int32 [b]; several classes, float32 [b, classes]; or a number,
    float32 [b]. The loss is a mean; for `label_smoothing` see `smoothed`.
    Its prediction is "logits", [b, num_outputs].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        pooled = bert.build(config, features, mode).get_pooled_output()
        logits = bert.scores(pooled, num_outputs, config, mode)
        loss = None
        if "label_ids" in features:
            loss = tf.reduce_mean(_losses(logits, features["label_ids"], label_smoothing))
        return Outputs(loss=loss, predictions={"logits": logits})
    return forward


def _losses(logits: tf.Tensor, labels: tf.Tensor, label_smoothing: float) -> tf.Tensor:
    """Cross-entropy for classes; squared error for numbers; of the shape of the labels."""
    if labels.shape.ndims == 2:
        def loss(labels: tf.Tensor) -> tf.Tensor:
            return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return smoothed(loss(labels), lambda: loss(tf.fill(tf.shape(labels), 0.5)), label_smoothing)
    if labels.dtype.is_floating:
        return tf.squared_difference(tf.squeeze(logits, -1), labels)
    return cross_entropy(logits, labels, label_smoothing)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, label_smoothing: float) -> tf.Tensor:
    """The losses [n] of logits [n, classes] for one class each, [n]; see `smoothed`."""
    return smoothed(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits),
        lambda: -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1), label_smoothing)


def smoothed(losses: tf.Tensor, of_even: Callable[[], tf.Tensor], share: float) -> tf.Tensor:
    """Losses with the gradient of smoothed labels, whose `share` is spread evenly over all labels.

    The values stay those of the unsmoothed labels, so that the log and the comparison with a constant
    prediction do not change. (Szegedy et al., "Rethinking the Inception Architecture", section 7.)

    Args:
        losses: of the labels.
        of_even: makes the losses of labels that are all alike.
    """
    if not share:
        return losses
    more = share * (of_even() - losses)
    return losses + (more - tf.stop_gradient(more))

"""The encoder, with the states of some layers as its predictions."""

from typing import Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs


POOLINGS = ("cls", "mean", "max")


def forward_of(config: modeling.BertConfig, layers: Sequence[int],
               pooling: Optional[str]) -> Forward:
    """A model without a loss, whose prediction is "states".

    Its features are input_ids, input_mask and segment_ids, int32 [b, t].

    Args:
        layers: indices of layers, from 0, or from -1 backwards; their states are concatenated.
        pooling: one of POOLINGS, for states [b, layers x D]; None for all tokens' states,
            [b, t, layers x D].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        of_layers = bert.build(config, features, mode).get_all_encoder_layers()
        states = tf.concat([tf.cast(of_layers[layer], tf.float32) for layer in layers], axis=-1)
        if pooling:
            mask = tf.cast(features["input_mask"], tf.float32)
            states = _pool(states, mask[:, :, tf.newaxis], pooling)
        return Outputs(loss=None, predictions={"states": states})
    return forward


def _pool(states: tf.Tensor, mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """States [b, t, D] -> [b, D]; mask [b, t, 1] is 0.0 at padding, 1.0 at [CLS] and [SEP]."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "mean":
        return tf.reduce_sum(states * mask, axis=1) / tf.reduce_sum(mask, axis=1)
    # Padding gets a value below all states; adding 0 leaves those of tokens as they are.
    return tf.reduce_max(states + (mask - 1.0) * (tf.float32.max / 2), axis=1)

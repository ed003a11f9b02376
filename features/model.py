"""The encoder, with the states of some layers as its predictions."""

from typing import Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, layers: Sequence[int],
               pooling: Optional[str]) -> Forward:
    """A model without a loss, whose prediction is "states".

    Its features are input_ids, input_mask and segment_ids, int32 [b, t].

    Args:
        layers: indices of layers, from 0, or from -1 backwards; their states are concatenated.
        pooling: one of `bert.POOLINGS`, for states [b, layers x D]; None for all tokens' states,
            [b, t, layers x D].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        of_layers = bert.build(config, features, mode).get_all_encoder_layers()
        states = tf.concat([tf.cast(of_layers[layer], tf.float32) for layer in layers], axis=-1)
        if pooling:
            states = bert.pooled(states, features["input_mask"], pooling)
        return Outputs(loss=None, predictions={"states": states})
    return forward

"""BERT's encoder as the capabilities build it: from a batch's features, in a mode."""

from typing import Dict

import tensorflow.compat.v1 as tf

import modeling
from engine.model import Mode


def build(config: modeling.BertConfig, features: Dict[str, tf.Tensor], mode: Mode, *,
          gives_attention_scores: bool = False) -> modeling.BertModel:
    """Builds the encoder in the default graph, with its variables in the current scope.

    Args:
        features: input_ids and input_mask, int32 [b, t], and segment_ids where there are two
            segments.
        gives_attention_scores: see `modeling.BertModel`.
    """
    return modeling.BertModel(
        config=config,
        is_training=mode.is_training,
        input_ids=features["input_ids"],
        input_mask=features["input_mask"],
        token_type_ids=features.get("segment_ids"),
        dropout_seed=mode.dropout_seed,
        gives_attention_scores=gives_attention_scores,
        computation=mode.computation)

"""BERT's encoder as the capabilities build it: from a batch's features, in a mode."""

from typing import Dict

import tensorflow.compat.v1 as tf

from replication import graph_functions
import modeling
from engine.model import Mode

POOLINGS = ("cls", "mean", "max")


def build(config: modeling.BertConfig, features: Dict[str, tf.Tensor], mode: Mode, *,
          gives_attention_scores: bool = False, reads_pooler: bool = False) -> modeling.BertModel:
    """Builds the encoder in the default graph, with its variables in the current scope.

    Args:
        features: input_ids and input_mask, int32 [b, t], and segment_ids where there are two
            segments.
        gives_attention_scores: see `modeling.BertModel`.
        reads_pooler: whether the pooled output is used. Only a training has a pooler without that, to
            keep it in its checkpoints: some models come without one.
    """
    return modeling.BertModel(
        config=config,
        is_training=mode.is_training,
        input_ids=features["input_ids"],
        input_mask=features["input_mask"],
        token_type_ids=features.get("segment_ids"),
        dropout_seed=mode.dropout_seed,
        gives_attention_scores=gives_attention_scores,
        computation=mode.computation,
        has_pooler=reads_pooler or mode.is_training)


def scores(states: tf.Tensor, num_outputs: int, config: modeling.BertConfig,
           mode: Mode) -> tf.Tensor:
    """The output layer of a fine-tuned model: scores [n, num_outputs] of states [..., D]."""
    weights = tf.get_variable("output_weights", [num_outputs, config.hidden_size],
                              initializer=modeling.create_initializer())
    bias = tf.get_variable("output_bias", [num_outputs], initializer=tf.zeros_initializer())
    states = modeling.dropout(states, config.hidden_dropout_prob if mode.is_training else 0.0,
                              dropout_seed=mode.dropout_seed)
    states = modeling.reshape_to_matrix(states)
    return tf.nn.bias_add(tf.matmul(states, weights, transpose_b=True), bias)


def pooled(states: tf.Tensor, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """A vector for each text, [b, D], from the states of its tokens, [b, t, D].

    Args:
        input_mask: [b, t], 1 at tokens, [CLS] and [SEP] among them, and 0 at padding.
        pooling: one of POOLINGS: the state of [CLS], or the mean or the maximum over the tokens.
    """
    if pooling == "cls":
        return states[:, 0]
    mask = tf.cast(input_mask, tf.float32)[:, :, tf.newaxis]
    if pooling == "mean":
        return graph_functions.sum_over(states * mask, 1) / tf.reduce_sum(mask, axis=1)
    # Padding gets a value below all states; adding 0 leaves those of tokens as they are.
    return graph_functions.max_over(states + (mask - 1.0) * (tf.float32.max / 2), 1)

"""The probability of a slot's phrase under a masked language model, given the text around it.

A baseline for the trained scorer: it needs no training on slots.
"""

from typing import Dict

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import bert, pretraining_heads
from engine.data.batches import Source
from engine.model import Forward, Mode, Outputs
from rewriting.pairs import Pairs


def source_of(pairs: Pairs) -> Source:
    """Batches of [CLS] before [MASK] ... [MASK] after [SEP]: pairs without their phrases.

    The features are input_ids, input_mask and segment_ids, int32 [b, t]; positions and ids of
    the phrase's tokens, int32 [b, p], and weights, float32 [b, p]: 1.0 for tokens, 0.0 for
    padding.
    """
    phrase_lengths = pairs.candidates.lengths("ids", pairs.phrases)

    def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        # Everything from the [SEP] after the phrase on; that [SEP] becomes the [CLS].
        sizes = phrase_lengths[indices, np.newaxis]
        longest = int(sizes.max())
        features = pairs.features(indices, length + longest + 1)
        positions = np.arange(length) + sizes + 1
        features = {name: np.take_along_axis(values, positions, axis=1)
                    for name, values in features.items()}
        features["input_ids"][:, 0] = pairs.tokenizer.cls_id
        is_filled = np.arange(longest) < sizes
        first = (features["input_ids"] == pairs.tokenizer.mask_id).argmax(axis=1)
        return {**features, "segment_ids": np.zeros_like(features["segment_ids"]),
                "positions": np.where(is_filled, first[:, np.newaxis] + np.arange(longest),
                                      0).astype(np.int32),
                "ids": pairs.candidates.padded("ids", pairs.phrases[indices],
                                               longest).astype(np.int32),
                "weights": is_filled.astype(np.float32)}

    return Source(pairs.lengths() - phrase_lengths - 1, fetch, pairs.max_seq_length,
                  pairs.dynamic_padding)


def forward_of(config: modeling.BertConfig) -> Forward:
    """The model with its masked-LM head; predicts "log_likelihood" [b], a mean over tokens."""
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = bert.build(config, features, mode)
        states = model.get_sequence_output_at(features["positions"])
        logits = pretraining_heads.masked_lm_logits(
            modeling.reshape_to_matrix(states), model.get_embedding_table(), config)
        ids, weights = features["ids"], features["weights"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(ids, [-1]), logits=logits)
        sums = tf.reduce_sum(tf.reshape(losses, tf.shape(ids)) * weights, axis=1)
        return Outputs(None, {"log_likelihood": -sums / tf.reduce_sum(weights, axis=1)})
    return forward

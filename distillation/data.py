"""The texts of general distillation: pretraining examples with their masked tokens restored."""

import numpy as np

from encoder import pretraining_tfrecords
from encoder.encoding import Encoding
from engine.data.batches import Features, Source, token_features


def source(texts: pretraining_tfrecords.Opened, encoding: Encoding, *,
           dynamic_padding: bool) -> Source:
    """Batches of input_ids, input_mask and segment_ids."""
    records = texts.records

    def fetch(indices: np.ndarray, length: int) -> Features:
        features = token_features(records, indices, length)
        if "masked_lm_ids" in records:
            positions, counts = records.values("masked_lm_positions", indices)
            tokens, _ = records.values("masked_lm_ids", indices)
            features["input_ids"][np.repeat(np.arange(len(indices)), counts), positions] = tokens
        return features

    return Source(records.lengths("input_ids"), fetch, encoding.max_seq_length, dynamic_padding)

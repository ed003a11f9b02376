"""Pretraining examples, from TFRecord files into a store, and batches out of it."""

import os
from typing import List, NamedTuple, Optional

import numpy as np

from encoder import pretraining_tfrecords, vocabulary
from encoder.pretraining_tfrecords import Sizes
from engine.data import store
from engine.data.batches import Features, Source, token_features
from engine.disk import files
from engine.errors import UserError


class RecordSet(NamedTuple):
    """The examples of some files. Made by `load_records`."""
    records: store.Records
    content_hash: str  # of the files
    max_seq_length: int
    # The most masked tokens in examples of up to so many tokens, [max_seq_length + 1].
    most_masked: np.ndarray

    def __len__(self) -> int:
        return len(self.records)

    @property
    def has_next_sentences(self) -> bool:
        """Whether the next-sentence labels differ, so that there is something to learn.

        Examples with a single text all have the label 0, so that the original can read them.
        """
        labels = self.records.flat("next_sentence_label")
        return bool((labels != labels[0]).any())

    def source(self) -> Source:
        """What the engine reads batches from.

        Features: input_ids, input_mask, segment_ids, int32 [b, t]; masked_lm_positions,
        masked_lm_ids, int32 [b, p], masked_lm_weights, float32 [b, p], where p is the most
        masked tokens in examples of up to t tokens; next_sentence_labels, int32 [b]. In
        training also masked_lm_mean_weight, float32 [b]: the sum of weights per example,
        averaged over the whole step (with Google's 1e-5 added), the same for all examples.
        """
        def fetch_for_step(indices: np.ndarray, length: int) -> Features:
            features = self._features(indices, length)
            weight = features["masked_lm_weights"].sum() + 1e-5
            features["masked_lm_mean_weight"] = np.full(
                len(indices), weight / len(indices), np.float32)
            return features

        return Source(self.records.lengths("input_ids"), self._features, self.max_seq_length,
                      fetch_for_step=fetch_for_step)

    def _features(self, indices: np.ndarray, length: int) -> Features:
        records, width = self.records, self.most_masked[length]
        counts = records.lengths("masked_lm_positions", indices)
        return {
            **token_features(records, indices, length),
            "next_sentence_labels":
                records.scalars("next_sentence_label", indices).astype(np.int32),
            "masked_lm_positions":
                records.padded("masked_lm_positions", indices, width).astype(np.int32),
            "masked_lm_ids": records.padded("masked_lm_ids", indices, width).astype(np.int32),
            "masked_lm_weights":
                (np.arange(width) < counts[:, np.newaxis]).astype(np.float32)}


def load_records(patterns: str, flag: str, sizes: Sizes, store_dir: str, *,
                 vocab_file: Optional[str]) -> RecordSet:
    """Opens the examples of TFRecord files, preparing them first if needed.

    Args:
        patterns: names of files, patterns and directories, comma-separated.
        flag: the flag that gives them, for messages.
        vocab_file: if given, it must be the one that the files were made with.
    """
    opened = pretraining_tfrecords.open_store(patterns, flag, sizes, store_dir)
    if vocab_file:
        check_vocab(opened.paths, vocab_file)
    return RecordSet(opened.records, opened.content_hash, sizes.max_seq_length,
                     _most_masked(opened.records, sizes.max_seq_length))


def _most_masked(records: store.Records, max_seq_length: int) -> np.ndarray:
    lengths, counts = records.lengths("input_ids"), records.lengths("masked_lm_positions")
    size = int(counts.max()) + 1
    seen = np.bincount(lengths * size + counts, minlength=(max_seq_length + 1) * size)
    most = np.where(seen.reshape(-1, size), np.arange(size), 1).max(axis=1)
    return np.maximum.accumulate(most)


def check_vocab(paths: List[str], vocab_file: str) -> Optional[bool]:
    """Compares a vocabulary with that of the examples, as `create_data` describes them.

    Returns:
        `do_lower_case` of the first files with a description; None if another program wrote them.
    """
    digest, do_lower_case = vocabulary.content_hash(vocab_file), None
    for path in paths:
        if os.path.exists(f"{path}.json"):
            facts = files.read_record(f"{path}.json", "the description of records",
                                      {"vocab_sha256": str, "do_lower_case": bool})
            if facts["vocab_sha256"] != digest:
                raise UserError(f"--vocab_file={vocab_file} is not the one that {path} was made "
                                "with")
            do_lower_case = facts["do_lower_case"]
    return do_lower_case

"""Pretraining examples, from TFRecord files into a store, and batches out of it.

Examples come with their masks, or get other masks in each epoch, as a function of the seed,
the epoch and the example's number alone.
"""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from encoder import pretraining_tfrecords, vocabulary
from encoder.pretraining_tfrecords import Sizes
from engine.data import store
from engine.data.batches import Features, Source, token_features
from engine.disk import files
from engine.errors import UserError
from pretraining import masking
from pretraining.counter_rng import keys_of

# The seed of masks in evaluations: the same for each run, whatever its --seed.
_EVALUATION_SEED = 0
# What the file of `create_data` beside records says of the masks that are to be drawn.
_MASK_FACTS = {"mask_shape": str, "masked_lm_prob": (int, float), "vocab_sha256": str,
               "max_predictions_per_seq": int, "do_lower_case": bool}


class RecordSet(NamedTuple):
    """The examples of some files. Made by `load_records`."""
    records: store.Records
    content_hash: str  # of the files
    max_seq_length: int
    dynamic_padding: bool
    scheme: Optional[masking.Scheme]  # how masks are drawn; None: they are in the records
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

    def source(self, seed: int) -> Source:
        """What the engine reads batches from; training draws masks from `seed`.

        Features: input_ids, input_mask, segment_ids, int32 [b, t]; masked_lm_positions,
        masked_lm_ids, int32 [b, p], masked_lm_weights, float32 [b, p], where p is the most
        masked tokens in examples of up to t tokens; next_sentence_labels, int32 [b]. In
        training also masked_lm_mean_weight, float32 [b]: the sum of weights per example,
        averaged over the whole step (with Google's 1e-5 added), the same for all examples.
        """
        def fetch(indices: np.ndarray, length: int) -> Features:
            return self._features(indices, keys_of(_EVALUATION_SEED, 0, indices), length)

        def fetch_for_step(indices: np.ndarray, epochs: np.ndarray, length: int) -> Features:
            features = self._features(indices, keys_of(seed, epochs, indices), length)
            weight = features["masked_lm_weights"].sum() + 1e-5
            features["masked_lm_mean_weight"] = np.full(
                len(indices), weight / len(indices), np.float32)
            return features

        return Source(self.records.lengths("input_ids"), fetch, self.max_seq_length,
                      self.dynamic_padding, fetch_for_step=fetch_for_step)

    def _features(self, indices: np.ndarray, keys: np.ndarray, length: int) -> Features:
        records = self.records
        features = {
            **token_features(records, indices, length),
            "next_sentence_labels":
                records.scalars("next_sentence_label", indices).astype(np.int32)}
        if self.scheme:
            words = records.padded("word_starts", indices, length)
            masks = masking.draw({**features, "word_starts": words}, keys, self.scheme)
            width = self.most_masked[length]
            return {**features, **{name: values[:, :width] if name.startswith("masked") else values
                                   for name, values in masks.items()}}
        return {**features, **self._frozen_masks(indices, self.most_masked[length])}

    def _frozen_masks(self, indices: np.ndarray, width: int) -> Features:
        records = self.records
        counts = records.lengths("masked_lm_positions", indices)
        return {
            "masked_lm_positions":
                records.padded("masked_lm_positions", indices, width).astype(np.int32),
            "masked_lm_ids": records.padded("masked_lm_ids", indices, width).astype(np.int32),
            "masked_lm_weights":
                (np.arange(width) < counts[:, np.newaxis]).astype(np.float32)}


def load_records(patterns: str, flag: str, sizes: Sizes, store_dir: str, *,
                 vocab_file: Optional[str], dynamic_padding: bool) -> RecordSet:
    """Opens the examples of TFRecord files, preparing them first if needed.

    Args:
        patterns: names of files, patterns and directories, comma-separated.
        flag: the flag that gives them, for messages.
        vocab_file: needed to draw masks; if given, it must be the one that the files were made
            with.

    Raises:
        UserError: the files hold no examples of these sizes.
    """
    opened = pretraining_tfrecords.open_store(patterns, flag, sizes, store_dir)
    records, scheme = opened.records, None
    if vocab_file:
        check_vocab(opened.paths, vocab_file)
    if opened.layout.num_predictions is None:
        scheme = _scheme(opened.paths, vocab_file, sizes)
    digest = files.hash_of(json.dumps([opened.hashes, scheme]).encode("utf-8"))
    most_masked = (masking.most_masked(np.arange(sizes.max_seq_length + 1), scheme) if scheme
                   else _most_masked(records, sizes.max_seq_length))
    return RecordSet(records, digest, sizes.max_seq_length, dynamic_padding, scheme, most_masked)


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


def _scheme(paths: List[str], vocab_file: Optional[str], sizes: Sizes) -> masking.Scheme:
    """How masks are drawn, from the settings that `create_data` wrote beside each file."""
    first, facts = paths[0], _mask_facts(paths[0])
    for path in paths[1:]:
        if _mask_facts(path) != facts:
            raise UserError(f"{first} and {path} are made for masks of other kinds, or with other "
                            "vocabularies; create their data with the same flags")
    if not vocab_file:
        raise UserError(f"--vocab_file is required: masks of the records of {first} are drawn "
                        "while training")
    if facts["max_predictions_per_seq"] > sizes.max_predictions_per_seq:
        raise pretraining_tfrecords.too_many_predictions(
            first, facts["max_predictions_per_seq"], sizes.max_predictions_per_seq)
    scheme = masking.Scheme.of(
        vocabulary.require_mask(
            vocabulary.load_tokenizer(vocab_file, facts["do_lower_case"]), vocab_file),
        shape=facts["mask_shape"], masked_lm_prob=facts["masked_lm_prob"],
        max_predictions_per_seq=facts["max_predictions_per_seq"])
    if scheme.vocab_size > sizes.vocab_size:  # any of its tokens may replace a masked one
        raise UserError(f"--vocab_file={vocab_file} has {scheme.vocab_size:,} entries, and "
                        f"--bert_config_file says vocab_size {sizes.vocab_size:,}: they must "
                        "belong to the same model")
    return scheme


def _mask_facts(path: str) -> Dict[str, Any]:
    facts = files.read_record(f"{path}.json", f"{path} needs masks to be drawn as described in "
                              "the file", _MASK_FACTS)
    return {name: facts[name] for name in _MASK_FACTS}

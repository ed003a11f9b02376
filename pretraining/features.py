"""Spans of a corpus → the features of examples: [CLS] first [SEP] second [SEP], masked or not.

With frozen masks these are the original's seven features. For masks that are drawn in
training, they are the unmasked tokens and where words begin.
"""

from typing import Dict, NamedTuple, Optional

import numpy as np

from engine.data import store
from pretraining import counter_rng, masking
from pretraining.corpus import Corpus, piece_flags
from pretraining.objectives import Settings
from tokenization import BatchTokenizer

# Counters of random keys: for the masks of an example, and for the order of the examples.
_MASKS, _ORDER = range(2)


class Assembly(NamedTuple):
    """How examples are put together. L is `settings.max_seq_length`."""
    corpus: Corpus
    examples: store.Store  # columns of `objectives`
    tokenizer: BatchTokenizer
    settings: Settings

    @property
    def scheme(self) -> Optional[masking.Scheme]:
        """How masks are drawn; None: in training."""
        if self.settings.masks == "dynamic":
            return None
        return masking.Scheme.of(
            self.tokenizer, shape=self.settings.mask_shape,
            masked_lm_prob=self.settings.masked_lm_prob,
            max_predictions_per_seq=self.settings.max_predictions_per_seq)

    def features(self, start: int, end: int) -> Dict[str, np.ndarray]:
        """The features of the examples start..end - 1 of a random order, each [end - start, …].

        With frozen masks: `input_ids`, `input_mask`, `segment_ids` int32 [B, L];
        `masked_lm_positions`, `masked_lm_ids` int32 and `masked_lm_weights` float32
        [B, max_predictions_per_seq]; `next_sentence_labels` int32 [B, 1]. Without: `word_starts`
        [B, L] instead of the three features of the masks.
        """
        count = len(self.examples)
        order_seed = int(counter_rng.keys_of(self.settings.random_seed, _ORDER)[0])
        indices = counter_rng.permuted(np.arange(start, end), count, order_seed)
        features = self._unmasked(indices)
        scheme = self.scheme
        if scheme:
            keys = counter_rng.keys_of(self.settings.random_seed, _MASKS, indices)
            features.update(masking.draw(features, keys, scheme))
            del features["word_starts"]
        return features

    def _unmasked(self, indices: np.ndarray) -> Dict[str, np.ndarray]:
        def column(name: str) -> np.ndarray:
            return self.examples.scalars(name, indices).astype(np.int64)[:, np.newaxis]

        positions = np.arange(self.settings.max_seq_length)
        first_end = 1 + column("first_length")  # the first [SEP]
        second_length = column("second_length")
        second_end = first_end + second_length + (second_length > 0)  # the last [SEP]
        in_first = (positions > 0) & (positions < first_end)
        in_second = (positions > first_end) & (positions < second_end)
        is_text = in_first | in_second
        sources = np.where(in_first, column("first_start") + positions - 1,
                           column("second_start") + positions - first_end - 1)[is_text]
        input_ids = np.zeros(is_text.shape, np.int32)
        input_ids[:, 0] = self.tokenizer.cls_id
        input_ids[(positions == first_end) | (positions == second_end)] = self.tokenizer.sep_id
        input_ids[is_text] = self.corpus.ids[sources]
        word_starts = np.zeros(is_text.shape, np.int32)
        word_starts[is_text] = self._word_starts(sources)
        return {"input_ids": input_ids,
                "input_mask": (positions <= second_end).astype(np.int32),
                "segment_ids": ((positions > first_end)
                                & (positions <= second_end)).astype(np.int32),
                "word_starts": word_starts,
                "next_sentence_labels": column("label").astype(np.int32)}

    def _word_starts(self, sources: np.ndarray) -> np.ndarray:
        """Whether a unit that is masked as a whole begins at these positions of the corpus."""
        if not (self.settings.do_whole_word_mask or self.settings.chinese_whole_words):
            return np.ones(len(sources), np.int32)
        if self.corpus.word_starts is not None:
            return self.corpus.word_starts[sources]
        return ~piece_flags(self.tokenizer)[self.corpus.ids[sources]]

"""Spans of a corpus → the original's seven features: [CLS] first [SEP] second [SEP], masked."""

from typing import Dict, NamedTuple

import numpy as np

from engine.data import store
from pretraining import masking
from pretraining.corpus import Corpus
from pretraining.objectives import Settings
from tokenization import BatchTokenizer


class Assembly(NamedTuple):
    """How examples are put together. L is `settings.max_seq_length`."""
    corpus: Corpus
    examples: store.Store  # columns of `objectives`
    order: np.ndarray  # of the examples
    tokenizer: BatchTokenizer
    settings: Settings

    def features(self, start: int, end: int) -> Dict[str, np.ndarray]:
        """The features of the examples order[start:end].

        `input_ids`, `input_mask`, `segment_ids` int32 [B, L]; `masked_lm_positions`,
        `masked_lm_ids` int32 and `masked_lm_weights` float32 [B, max_predictions_per_seq];
        `next_sentence_labels` int32 [B, 1].
        """
        settings = self.settings
        indices = self.order[start:end]
        records = self._records(indices)
        positions = np.arange(settings.max_seq_length)
        second_start = records.first_text.sum(axis=1, keepdims=True) + 2  # after [CLS], [SEP]
        mask = positions < records.lengths[:, np.newaxis]
        return {
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (positions >= second_start)).astype(np.int32),
            "next_sentence_labels":
                self.examples.scalars("label", indices).astype(np.int32)[:, np.newaxis],
            **masking.draw(records, settings, self.tokenizer.mask_id, self.tokenizer.largest_id + 1,
                           np.random.RandomState([settings.random_seed, start]))}

    def _records(self, indices: np.ndarray) -> masking.Records:
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
        word_starts = np.ones(is_text.shape, bool)
        if self.settings.do_whole_word_mask:
            word_starts[is_text] = self.corpus.sentences.flat("starts")[sources]
        return masking.Records(input_ids, in_first, in_second, word_starts, second_end[:, 0] + 1)

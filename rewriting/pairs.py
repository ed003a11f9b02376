"""Pairs of a slot and a phrase as the model's input.

[CLS] phrase [SEP] before [MASK] ... [MASK] after [SEP], with as many [MASK]s as the phrase has
tokens. If the tokens do not fit, the context is cut, farthest from the slot first; the phrase
and the slot never are. Phrase, before and after are tokenized separately, so that the
characters around the slot cannot change where it is.
"""

from typing import Dict, NamedTuple, Sequence

import numpy as np

from encoder import vocabulary
from encoder.encoding import Encoding, truncated_lengths
from engine.data.batches import Source
from engine.data.store import Chunk, Column, RaggedChunk, Records
from engine.errors import UserError

_NUM_SPECIAL = 3  # [CLS] and two times [SEP]


def longest_phrase(max_seq_length: int) -> int:
    """Tokens of the longest phrase that the model can read: it takes up its length twice."""
    return (max_seq_length - _NUM_SPECIAL) // 2


def check_vocabulary(encoding: Encoding) -> None:
    """Raises a UserError if the vocabulary has no [MASK], or the model reads too few tokens."""
    vocabulary.require_mask(encoding.tokenizer, encoding.vocab_file)
    if longest_phrase(encoding.max_seq_length) < 1:
        raise UserError(f"--max_seq_length={encoding.max_seq_length}: must be at least "
                        f"{_NUM_SPECIAL + 2}, for a phrase of one token and its slot")


def context_columns(encoding: Encoding) -> Dict[str, Column]:
    """The columns of a store for what `encode_contexts` returns."""
    return {name: Column(encoding.id_dtype, ragged=True) for name in ("before", "after")}


def encode_contexts(before: Sequence[str], after: Sequence[str], encoding: Encoding) -> Chunk:
    """The token ids around slots, at most `max_seq_length` on each side."""
    most = encoding.max_seq_length
    return {"before": _cut(*encoding.encode(before), most, keep_end=True),
            "after": _cut(*encoding.encode(after), most, keep_end=False)}


def _cut(values: np.ndarray, lengths: np.ndarray, most: int, *, keep_end: bool) -> RaggedChunk:
    """The last (`keep_end`) or first `most` values of each row."""
    kept = np.minimum(lengths, most)
    return values[_is_kept(lengths, kept, keep_end=keep_end)], kept


def _is_kept(lengths: np.ndarray, kept: np.ndarray, *, keep_end: bool) -> np.ndarray:
    """Which values of flat rows are among the last (`keep_end`) or first `kept` of their row."""
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    if keep_end:
        return positions >= np.repeat(lengths - kept, lengths)
    return positions < np.repeat(kept, lengths)


class Pairs(NamedTuple):
    """Any number of pairs: pair i is the context `slots[i]` with the candidate `phrases[i]`."""
    contexts: Records  # "before", "after": token ids around a slot
    candidates: Records  # "ids": token ids of a phrase
    slots: np.ndarray  # [n]
    phrases: np.ndarray  # [n]
    encoding: Encoding

    def __len__(self) -> int:
        return len(self.slots)

    def chosen(self, which: np.ndarray) -> "Pairs":
        """Some of the pairs, by a mask or by their numbers."""
        return Pairs(self.contexts, self.candidates, self.slots[which], self.phrases[which],
                     self.encoding)

    def lengths(self) -> np.ndarray:
        """Tokens of each pair, [n]."""
        context = (self.contexts.lengths("before", self.slots)
                   + self.contexts.lengths("after", self.slots))
        phrase = self.candidates.lengths("ids", self.phrases)
        return np.minimum(_NUM_SPECIAL + 2 * phrase + context, self.encoding.max_seq_length)

    def source(self) -> Source:
        """Batches for a scorer, without labels."""
        return Source(self.lengths(), self.features, self.encoding.max_seq_length)

    def features(self, indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        """input_ids, input_mask and segment_ids of these pairs, int32 [len(indices), length]."""
        slots, phrases = self.slots[indices], self.phrases[indices]
        before, before_lengths = self.contexts.values("before", slots)
        after, after_lengths = self.contexts.values("after", slots)
        phrase, phrase_lengths = self.candidates.values("ids", phrases)
        kept_before, kept_after = truncated_lengths(
            before_lengths, after_lengths,
            self.encoding.max_seq_length - _NUM_SPECIAL - 2 * phrase_lengths)
        # Where each part ends, [b, 1].
        ends = np.cumsum([np.ones_like(slots), phrase_lengths, np.ones_like(slots), kept_before,
                          phrase_lengths, kept_after, np.ones_like(slots)], axis=0)
        cls_end, phrase_end, sep_end, before_end, slot_end, after_end, end = ends[..., np.newaxis]
        positions, tokenizer = np.arange(length), self.encoding.tokenizer
        input_ids = np.where(positions < end, tokenizer.sep_id, tokenizer.pad_id).astype(np.int32)
        input_ids[:, 0] = tokenizer.cls_id
        input_ids[(positions >= cls_end) & (positions < phrase_end)] = phrase
        input_ids[(positions >= sep_end) & (positions < before_end)] = before[
            _is_kept(before_lengths, kept_before, keep_end=True)]
        input_ids[(positions >= before_end) & (positions < slot_end)] = tokenizer.mask_id
        input_ids[(positions >= slot_end) & (positions < after_end)] = after[
            _is_kept(after_lengths, kept_after, keep_end=False)]
        return {"input_ids": input_ids,
                "input_mask": (positions < end).astype(np.int32),
                "segment_ids": ((positions >= sep_end) & (positions < end)).astype(np.int32)}

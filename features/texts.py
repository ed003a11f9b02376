"""The texts of an input file, tokenized chunk by chunk."""

from typing import Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from encoder.encoding import Encoding, encode_texts_and_pairs
from engine.data import store, text_files
from engine.data.batches import Source, token_features
from engine.data.text_files import OddRows

_BETWEEN = " ||| "  # two texts of a line, as in Google's code


def read_texts(path: text_files.Path, odd: OddRows) -> Iterator[Optional[Tuple[str, str]]]:
    """The text of each line and its second text, "" if it has none.

    Args:
        odd: see `text_files.lines`.
    """
    for _, line in text_files.lines(path, odd=odd):
        text_a, between, text_b = (line or "").strip().rpartition(_BETWEEN)
        yield None if line is None else (text_a, text_b) if between else (text_b, "")


class Texts(NamedTuple):
    """Some tokenized texts."""
    records: store.Records
    encoding: Encoding

    @classmethod
    def of(cls, texts: List[Optional[Tuple[str, str]]], encoding: Encoding) -> "Texts":
        """Tokenizes texts and their second texts; None is an empty text."""
        first, second = zip(*(text or ("", "") for text in texts))
        chunk = encode_texts_and_pairs(list(first), list(second), encoding)
        return cls(store.Records.of_chunk(chunk), encoding)

    def source(self) -> Source:
        """Batches of input_ids, input_mask and segment_ids."""
        records = self.records
        return Source(records.lengths("input_ids"),
                      lambda indices, length: token_features(records, indices, length),
                      self.encoding.max_seq_length)

    def tokens(self, index: int) -> List[str]:
        """The tokens of a text, with [CLS] and [SEP]."""
        ids, _ = self.records.values("input_ids", np.array([index]))
        return self.encoding.tokenizer.convert_ids_to_tokens(ids.tolist())

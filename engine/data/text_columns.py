"""Stores texts in a ragged column, in UTF-8."""

from typing import List, Sequence

import numpy as np

from engine.data.store import Column, RaggedChunk

COLUMN = Column("uint8", ragged=True)


def to_chunk(texts: Sequence[str]) -> RaggedChunk:
    """Texts as a chunk of a store's column."""
    encoded = [text.encode("utf-8") for text in texts]
    return (np.frombuffer(b"".join(encoded), np.uint8),
            np.array([len(text) for text in encoded], np.int64))


def to_value(text: str) -> np.ndarray:
    """A text as a record's value."""
    return np.frombuffer(text.encode("utf-8"), np.uint8)


def from_chunk(chunk: RaggedChunk) -> List[str]:
    """The texts in a chunk: the inverse of `to_chunk`."""
    values, lengths = chunk
    content, ends = values.tobytes(), np.cumsum(lengths).tolist()
    return [content[end - length:end].decode("utf-8")
            for end, length in zip(ends, lengths.tolist())]

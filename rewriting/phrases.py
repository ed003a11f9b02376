"""Phrases as texts in a store, any number of them."""

from typing import Dict, Iterator, Sequence, Tuple

import numpy as np

from engine.data.store import Chunk, Column, RaggedChunk, Records

COLUMN = Column("uint8", ragged=True)  # UTF-8
COLUMNS: Dict[str, Column] = {"text": COLUMN}
_AT_A_TIME = 1 << 14


def encode(texts: Sequence[str]) -> Chunk:
    """Texts with the columns of COLUMNS."""
    return {"text": to_chunk(texts)}


def to_chunk(texts: Sequence[str]) -> RaggedChunk:
    """Texts as a chunk of a store's column."""
    encoded = [text.encode("utf-8") for text in texts]
    return (np.frombuffer(b"".join(encoded), np.uint8),
            np.array([len(text) for text in encoded], np.int64))


def decode(records: Records, row: int) -> str:
    """One of the texts."""
    return records.values("text", np.array([row]))[0].tobytes().decode("utf-8")


def decode_all(records: Records, column: str = "text") -> Iterator[Tuple[int, str]]:
    """Every row and its text, in bounded memory."""
    for start in range(0, len(records), _AT_A_TIME):
        values, lengths = records.values(column, slice(start, start + _AT_A_TIME))
        content, end = values.tobytes(), 0
        for row, length in enumerate(lengths.tolist(), start=start):
            end += length
            yield row, content[end - length:end].decode("utf-8")

"""Phrases as texts in a store, any number of them."""

from typing import Dict, Iterator, Sequence, Tuple

import numpy as np

from engine.data.store import Chunk, Column, Records

COLUMNS: Dict[str, Column] = {"text": Column("uint8", ragged=True)}  # UTF-8
_AT_A_TIME = 1 << 14


def encode(texts: Sequence[str]) -> Chunk:
    """Texts with the columns of COLUMNS."""
    encoded = [text.encode("utf-8") for text in texts]
    return {"text": (np.frombuffer(b"".join(encoded), np.uint8),
                     np.array([len(text) for text in encoded], np.int64))}


def decode(records: Records, row: int) -> str:
    """One of the texts."""
    return records.values("text", np.array([row]))[0].tobytes().decode("utf-8")


def decode_all(records: Records) -> Iterator[Tuple[int, str]]:
    """Every row and its text, in bounded memory."""
    for start in range(0, len(records), _AT_A_TIME):
        values, lengths = records.values("text", slice(start, start + _AT_A_TIME))
        content, end = values.tobytes(), 0
        for row, length in enumerate(lengths.tolist(), start=start):
            end += length
            yield row, content[end - length:end].decode("utf-8")

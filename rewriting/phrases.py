"""Phrases as texts in a store, any number of them."""

from typing import Dict, Iterator, Sequence, Tuple

import numpy as np

from engine.data.store import Chunk, Column, Records
from engine.data.text_columns import COLUMN, from_chunk, to_chunk

COLUMNS: Dict[str, Column] = {"text": COLUMN}
_AT_A_TIME = 1 << 14


def encode(texts: Sequence[str]) -> Chunk:
    """Texts with the columns of COLUMNS."""
    return {"text": to_chunk(texts)}


def decode(records: Records, row: int) -> str:
    """One of the texts."""
    return from_chunk(records.values("text", np.array([row])))[0]


def decode_all(records: Records, column: str = "text") -> Iterator[Tuple[int, str]]:
    """Every row and its text, in bounded memory."""
    for start in range(0, len(records), _AT_A_TIME):
        texts = from_chunk(records.values(column, slice(start, start + _AT_A_TIME)))
        yield from enumerate(texts, start)

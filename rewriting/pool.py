"""The phrases that may replace a clause: any number of them, in a store.

Their texts, token ids and search terms are memory-mapped; only a few bytes a phrase are in
memory.
"""

import hashlib
import os
from typing import Iterator, List, NamedTuple, Optional

import numpy as np

from encoder.encoding import Encoding
from engine import log
from engine.data import store, text_columns
from engine.data.chunks import in_chunks
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter
from rewriting import bm25, pairs, texts

_PHRASES_AT_A_TIME = 8192


class Pool(NamedTuple):
    """Made by `load_pool`."""
    records: store.Records  # "text", "ids", and the columns of bm25
    index: bm25.Index
    is_usable: np.ndarray  # bool [phrases]: neither a duplicate nor too long for the model
    content_hash: str

    def phrase(self, row: int) -> str:
        """The text of a phrase."""
        return text_columns.from_chunk(self.records.values("text", np.array([row])))[0]

    def phrases(self) -> Iterator[str]:
        """The texts of all phrases, in bounded memory."""
        for start in range(0, len(self.records), _PHRASES_AT_A_TIME):
            yield from text_columns.from_chunk(
                self.records.values("text", slice(start, start + _PHRASES_AT_A_TIME)))


def load_pool(path: str, column: Optional[str], encoding: Encoding, store_dir: str) -> Pool:
    """Opens the phrases of a file, preparing them first if needed.

    Args:
        column: the column of the phrases, see `texts.read_texts`.

    Raises:
        UserError: the file holds no phrase, or none that the model can read.
    """
    files.require_file(path, "--pool_file")
    content = files.content_hash(path, os.path.join(store_dir, "hashes.json"))
    key = {"content": content, "format": os.path.splitext(path)[1], "column": column,
           "vocab": encoding.vocab_hash, "do_lower_case": encoding.do_lower_case}
    columns = {"text": text_columns.COLUMN, **bm25.COLUMNS,
               "ids": store.Column(encoding.id_dtype, ragged=True),
               "hash": store.Column("uint64", ragged=False)}

    def chunks() -> Iterator[store.Chunk]:
        read = filter(None, map(str.strip, texts.read_texts(
            path, "--pool_file", column, role="pool")))
        with Counter(f"Preparing {path}", unit="phrases") as counter:
            for some in in_chunks(read, _PHRASES_AT_A_TIME):
                yield {"text": text_columns.to_chunk(some), **bm25.encode(some),
                       "ids": encoding.tokenizer.encode_batch(some), "hash": _hashes(some)}
                counter.advance(len(some))

    records = store.open_or_build(store_dir, "pool", key, columns, chunks)
    return Pool(records, bm25.Index(records), _usable(records, path, encoding), content)


def _hashes(some: List[str]) -> np.ndarray:
    return np.frombuffer(b"".join(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
                                  for text in some), np.uint64)


def _usable(records: store.Records, path: str, encoding: Encoding) -> np.ndarray:
    lengths = records.lengths("ids")
    most = pairs.longest_phrase(encoding.max_seq_length)
    num_too_long = int((lengths > most).sum())
    if num_too_long:
        log.warn(f"{path}: {num_too_long:,} phrases are left out: they have more than {most} "
                 "tokens, and the model reads a phrase twice within "
                 f"{encoding.max_seq_length}")
    is_usable = np.zeros(len(records), bool)
    is_usable[np.unique(records.scalars("hash"), return_index=True)[1]] = True
    is_usable &= (lengths > 0) & (lengths <= most)
    if not is_usable.any():
        raise UserError(f"--pool_file={path} holds no phrase that the model can read")
    return is_usable

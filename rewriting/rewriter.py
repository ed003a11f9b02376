"""A pool of phrases, and a search in it for candidates that the model scores."""

import functools
import os
from typing import Iterator, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from encoder.encoding import Encoding, open_or_tokenize
from engine import log
from engine.data import store, text_columns
from engine.disk import files, provenance
from engine.errors import UserError
from rewriting import bm25, pairs
from rewriting.texts import Slot, clauses, read_texts, slots

_PHRASES_AT_A_TIME = 8192


class Pool(NamedTuple):
    """The phrases that may replace a clause. Made by `load_pool`.

    Their texts and token ids are memory-mapped.
    """
    records: store.Records  # "text", "ids", and the columns of bm25
    index: bm25.Index
    is_usable: np.ndarray  # bool [phrases]: whether the model can read it
    content_hash: str

    def phrases(self, rows: Sequence[int]) -> List[str]:
        """The texts of these phrases."""
        return text_columns.from_chunk(self.records.values("text", np.array(rows, np.int64)))


def load_pool(path: str, encoding: Encoding, store_dir: str) -> Pool:
    """Opens the phrases of a file, preparing them first if needed."""
    files.require_file(path, "--pool_file")
    content = provenance.content_hash(path, store_dir)
    key = {"content": content, "format": os.path.splitext(path)[1],
           "vocab": encoding.vocab_hash, "do_lower_case": encoding.do_lower_case}
    columns = {"text": text_columns.COLUMN, **bm25.COLUMNS,
               "ids": store.Column(encoding.id_dtype, ragged=True)}

    def encode(phrases: List[str]) -> store.Chunk:
        return {"text": text_columns.to_chunk(phrases), **bm25.encode(phrases),
                "ids": encoding.encode(phrases)}

    records = open_or_tokenize(path, encoding, store_dir, "pool", key, columns,
                               functools.partial(_different, path), encode, unit="phrases",
                               chunk_size=_PHRASES_AT_A_TIME)
    lengths, most = records.lengths("ids"), pairs.longest_phrase(encoding.max_seq_length)
    num_too_long = int((lengths > most).sum())
    if num_too_long:
        log.warn(f"{path}: {num_too_long:,} phrases are left out: they have more than {most} "
                 "tokens, and the model reads a phrase twice within "
                 f"{encoding.max_seq_length}")
    is_usable = (lengths > 0) & (lengths <= most)
    if not is_usable.any():
        raise UserError(f"--pool_file={path} holds no phrase that the model can read")
    return Pool(records, bm25.Index(records), is_usable, content)


def _different(path: str) -> Iterator[str]:
    """Streams the phrases of a file, each once."""
    seen: Set[int] = set()  # hashes, which take less memory than texts
    for phrase in map(str.strip, read_texts(path, "--pool_file")):
        if phrase and hash(phrase) not in seen:
            seen.add(hash(phrase))
            yield phrase


class Rewrite(NamedTuple):
    """A slot of a text with another phrase in it."""
    slot: Slot
    phrase: str
    probability: float  # that the phrase fits

    @property
    def text(self) -> str:
        """The text with the phrase in the slot."""
        return self.slot.filled(self.phrase)


def candidates(texts: Sequence[str], pool: Pool, encoding: Encoding, count: int
               ) -> Tuple[List[Tuple[int, Slot]], pairs.Pairs]:
    """The slots of texts, each with its text's number, and the pairs to score: `count` phrases for each slot."""
    numbered_slots: List[Tuple[int, Slot]] = []
    numbered_rows: List[Tuple[int, int]] = []  # the number of a slot, and the row of a phrase
    for number, text in enumerate(texts):
        its_slots = slots(text)
        nearest = _nearest(text, pool, count) if its_slots else []
        for slot in its_slots:
            numbered_rows += [(len(numbered_slots), row) for row in nearest]
            numbered_slots.append((number, slot))
    numbers, rows = np.array(numbered_rows, np.int64).reshape(-1, 2).T
    contexts = store.Records.of_chunk(pairs.encode_contexts(
        [slot.before for _, slot in numbered_slots],
        [slot.after for _, slot in numbered_slots], encoding))
    return numbered_slots, pairs.Pairs(contexts, pool.records, numbers, rows, encoding)


def _nearest(text: str, pool: Pool, count: int) -> List[int]:
    """The rows of the phrases nearest to a text, `count` without its own clauses.

    If too few share a word with it, the first others of the pool follow.
    """
    own_clauses = set(map(_normalized, clauses(text)))
    most = count + len(own_clauses)
    rows = pool.index.top(text, most, pool.is_usable)
    others = np.flatnonzero(pool.is_usable)[:2 * most] if len(rows) < most else []
    rows = list(dict.fromkeys([*rows, *others]))[:most]
    return [row for row, phrase in zip(rows, pool.phrases(rows))
            if _normalized(phrase) not in own_clauses][:count]


def _normalized(phrase: str) -> str:
    """Equal for phrases that differ only in spaces and case."""
    return " ".join(phrase.split()).casefold()

"""From examples to what the engine trains on: token ids in a store, batches out of it.

Layout of a record, as in the original: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]; the
longer text gives way where they do not fit. A b without tokens has no [SEP].
"""

import json
import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from engine import files, log, store
from engine.batches import Source, token_features
from engine.errors import UserError
from engine.pieces import in_pieces
from engine.progress import Counter
from tasks import kinds
from tasks.reading import AnySplit, Example, content_hash, read_examples
from tasks.table import Task
from tokenization import BatchTokenizer

_CHUNK_EXAMPLES = 8192
# Some models have their vocab_size rounded up to a multiple of this.
_VOCAB_PADDING = 128


class Encoding(NamedTuple):
    """How texts become ids. Made by `load_encoding`."""
    tokenizer: BatchTokenizer
    vocab_file: str
    vocab_hash: str
    do_lower_case: bool
    max_seq_length: int

    @property
    def id_dtype(self) -> str:
        return "uint16" if max(self.tokenizer.vocab.values()) < 2**16 else "uint32"


def load_encoding(vocab_file: str, *, do_lower_case: bool, max_seq_length: int,
                  vocab_size: int) -> Encoding:
    """Loads the vocabulary and holds it against the model's `vocab_size`.

    Raises:
        UserError: the file is missing, damaged or belongs to another model.
    """
    files.require_file(vocab_file, "--vocab_file")
    try:
        tokenizer = BatchTokenizer(vocab_file, do_lower_case)
    except ValueError as error:
        raise UserError(f"--vocab_file: {error}") from error
    if max_seq_length < 3:
        raise UserError(f"--max_seq_length={max_seq_length}: must be at least 3, for [CLS], a "
                        "token and [SEP]")
    check_vocab_size(vocab_file, max(tokenizer.vocab.values()) + 1, vocab_size,
                     "--bert_config_file")
    with open(vocab_file, "rb") as file:
        digest = files.hash_of(file.read())
    return Encoding(tokenizer, vocab_file, digest, do_lower_case, max_seq_length)


def check_vocab_size(vocab_file: str, num_entries: int, vocab_size: int, says_so: str) -> None:
    """Raises a UserError where a vocabulary cannot be that of the model; warns of padding.

    Args:
        says_so: the flag with the model's `vocab_size`.
    """
    if num_entries == vocab_size:
        return
    difference = (f"--vocab_file={vocab_file} has {num_entries:,} entries, and {says_so} "
                  f"says vocab_size {vocab_size:,}")
    if num_entries > vocab_size:
        raise UserError(f"{difference}; they must belong to the same model")
    if num_entries <= vocab_size - _VOCAB_PADDING:
        raise UserError(f"{difference}: it is cut short or of another model; if it is neither, "
                        "fill it up with lines such as [unused1]")
    log.warn(f"{difference}: the last ones are taken for padding")


class TextSet(NamedTuple):
    """The examples of one file, tokenized. Made by `load_texts` and `encode_texts`."""
    records: store.Records
    kind: kinds.Kind
    content_hash: str  # of the file and what is read of it
    max_seq_length: int
    dynamic_padding: bool

    def __len__(self) -> int:
        return len(self.records)

    @property
    def labels(self) -> np.ndarray:
        return self.kind.targets(self.records, slice(None))

    @property
    def has_pairs(self) -> bool:
        """Whether any example has a second text."""
        first = self.records.scalars("first_segment_length")
        return bool((self.records.lengths("input_ids") > first).any())

    def source(self, *, with_labels: bool) -> Source:
        """What the engine reads batches from: input_ids, input_mask, segment_ids, label_ids."""
        records = self.records

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            features = token_features(records, indices, length)
            if with_labels:
                features["label_ids"] = self.kind.targets(records, indices)
            return features

        return Source(records.lengths("input_ids"), fetch, self.max_seq_length,
                      self.dynamic_padding)


def load_texts(task: Task, split: AnySplit, data_dir: str, encoding: Encoding, store_dir: str, *,
               dynamic_padding: bool) -> TextSet:
    """Opens the tokenized examples of a file, preparing them first where needed.

    Raises:
        UserError: the file is not as the task's row says.
    """
    content = [content_hash(split, data_dir, os.path.join(store_dir, "hashes.json")),
               split.columns, getattr(split, "keys", ()), getattr(split, "format", "processor")]
    kind = task.kind if split.columns.label is not None else None
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "first_segment_length": store.Column("int32", ragged=False)}
    if kind:
        columns["label"] = kind.column
    key = {"content": content, "labels": task.labels,
           "label_separator": task.label_separator, "label_aliases": task.label_aliases,
           "vocab": encoding.vocab_hash,
           "do_lower_case": encoding.do_lower_case, "max_seq_length": encoding.max_seq_length}

    def chunks() -> Iterator[store.Chunk]:
        description = f"Preparing {os.path.join(data_dir, split.file)}"
        with Counter(description, unit="examples") as counter:
            for examples in in_chunks(read_examples(task, split, data_dir)):
                yield _encode(examples, encoding, kind)
                counter.advance(len(examples))

    name = os.path.splitext(os.path.basename(split.file))[0]
    texts = store.open_or_build(store_dir, name, key, columns, chunks)
    digest = files.hash_of(json.dumps(content).encode("utf-8"))
    return TextSet(texts, task.kind, digest, encoding.max_seq_length, dynamic_padding)


def encode_texts(examples: List[Example], task: Task, encoding: Encoding) -> TextSet:
    """Tokenized examples in memory, without labels."""
    records = store.Records.of_chunk(_encode(examples, encoding, None))
    return TextSet(records, task.kind, "", encoding.max_seq_length, dynamic_padding=True)


def in_chunks(examples: Iterable[Example]) -> Iterator[List[Example]]:
    """Lists of a bounded number of examples, one after the other."""
    return in_pieces(examples, _CHUNK_EXAMPLES)


def _encode(examples: List[Example], encoding: Encoding,
            kind: Optional[kinds.Kind]) -> store.Chunk:
    """The store's columns for some examples."""
    encode = encoding.tokenizer.encode_batch
    ids_a, lengths_a = encode([example.text_a for example in examples])
    ids_b, lengths_b = encode([example.text_b or "" for example in examples])
    kept_a, kept_b = truncated_lengths(
        lengths_a, lengths_b, encoding.max_seq_length - 2 - (lengths_b > 0))
    first_segment_lengths = kept_a + 2
    lengths = first_segment_lengths + kept_b + (kept_b > 0)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    input_ids = np.full(ends[-1], encoding.tokenizer.sep_id, encoding.id_dtype)
    input_ids[starts] = encoding.tokenizer.cls_id
    _copy_rows(input_ids, starts + 1, ids_a, lengths_a, kept_a)
    _copy_rows(input_ids, starts + first_segment_lengths, ids_b, lengths_b, kept_b)
    chunk = {"input_ids": (input_ids, lengths), "first_segment_length": first_segment_lengths}
    if kind:
        chunk["label"] = kind.stored([example.label for example in examples])
    return chunk


def truncated_lengths(lengths_a: np.ndarray, lengths_b: np.ndarray,
                      limit: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Tokens kept of each pair when the longer one loses its last token until they fit.

    All [n]; `limit` is what the two may have together.

    Of two equally long ones the second gives way first, as in the original: where both
    must, the first keeps half of `limit` rounded up.
    """
    half = limit // 2
    kept_a = np.minimum(lengths_a, np.maximum(limit - half, limit - lengths_b))
    kept_b = np.minimum(lengths_b, np.maximum(half, limit - lengths_a))
    return kept_a, kept_b


def _copy_rows(target: np.ndarray, target_starts: np.ndarray, rows: np.ndarray,
               row_lengths: np.ndarray, kept: np.ndarray) -> None:
    """Copies the first `kept` values of each row of a flat array to its place in `target`."""
    row_starts = np.cumsum(row_lengths) - row_lengths
    within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    target[np.repeat(target_starts, kept) + within] = rows[np.repeat(row_starts, kept) + within]

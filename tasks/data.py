"""Tokenizes a task's examples into a store, and reads batches from it."""

import abc
import os
import pathlib
from typing import Dict, List, Optional, Tuple, Union

import numpy as np

from encoder import label_types
from encoder.encoding import Encoding, encode_texts_and_pairs, open_or_tokenize
from engine.data import store
from engine.data.batches import Source, token_features
from engine.disk import files
from runs.rows import Example, Split
from tasks.processors import ProcessorSplit

_CHUNK_EXAMPLES = 8192

AnySplit = Union[Split, ProcessorSplit]


class TrainingSet(abc.ABC):
    """What a classifier can be trained on: any number of examples with labels.

    Attributes:
        kind: what their labels are.
        content_hash: two sets with the same hash hold the same examples.
        has_pairs: whether any example has a second text.
        store_name: of the store that holds it; two sets with the same name hold the same tokens.
    """
    kind: label_types.Kind
    content_hash: str
    has_pairs: bool
    store_name: str

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of examples, in the units that batch sizes count."""

    @abc.abstractmethod
    def targets(self, indices: Union[slice, np.ndarray]) -> np.ndarray:
        """The labels of these examples, [b] or [b, classes]."""

    @abc.abstractmethod
    def source(self, *, with_labels: bool) -> Source:
        """The source of the engine's batches."""


class TextSet(TrainingSet):
    """The texts of one file, tokenized. Made by `load_texts` and `encode_texts`.

    An example is a text, or one of the windows over a long text; see `encoder.long_texts`.

    Args:
        content_hash: identifies the file and the columns that are read.
    """

    def __init__(self, records: store.Records, kind: label_types.Kind, content_hash: str,
                 encoding: Encoding):
        self.records = records
        self.kind = kind
        self.content_hash = content_hash
        self.encoding = encoding

    def __len__(self) -> int:
        return len(self.records)

    @property
    def num_texts(self) -> int:
        """The number of texts."""
        return int(self.records.scalars("text", -1)) + 1 if len(self) else 0

    @property
    def _starts(self) -> Union[slice, np.ndarray]:
        """The first example of each text."""
        if self.num_texts == len(self):
            return slice(None)
        return np.searchsorted(self.records.scalars("text"), np.arange(self.num_texts))

    @property
    def num_left_out(self) -> np.ndarray:
        """The tokens of each text that do not fit into one example, [texts]."""
        return self.records.scalars("num_left_out", self._starts)

    @property
    def labels(self) -> np.ndarray:
        """The labels of all texts, [texts] or [texts, classes]."""
        return self.targets(self._starts)

    def targets(self, indices: Union[slice, np.ndarray]) -> np.ndarray:
        return self.kind.targets(self.records, indices)

    def combined(self, logits: np.ndarray) -> np.ndarray:
        """The mean logits of each text's examples, [texts, outputs], from [n, outputs]."""
        if self.num_texts == len(self):
            return logits
        counts = np.diff(np.append(self._starts, len(self)))
        sums = np.add.reduceat(logits.astype(np.float64), self._starts)
        return (sums / counts[:, np.newaxis]).astype(logits.dtype)

    @property
    def store_name(self) -> str:
        """See `TrainingSet`; only of a set that `load_texts` made."""
        return os.path.basename(self.records.directory)

    @property
    def has_pairs(self) -> bool:
        """Whether any example has a second text."""
        first = self.records.scalars("first_segment_length")
        return bool((self.records.lengths("input_ids") > first).any())

    def source(self, *, with_labels: bool) -> Source:
        """Batches of input_ids, input_mask, segment_ids and label_ids."""
        records = self.records

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            features = token_features(records, indices, length)
            if with_labels:
                features["label_ids"] = self.targets(indices)
            return features

        return Source(records.lengths("input_ids"), fetch, self.encoding.max_seq_length)


def load_texts(split: AnySplit, kind: label_types.Kind, encoding: Encoding, store_dir: str) -> TextSet:
    """Opens the tokenized examples of a file; tokenizes them if the store does not have them yet.

    Args:
        kind: of the task's labels; behind them come those that only this file has.
    """
    content = split.content(store_dir)
    labels = kind.with_more(split.more_labels)
    parsed = labels if split.columns.label is not None else None
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "first_segment_length": store.Column("int32", ragged=False),
               "num_left_out": store.Column("int32", ragged=False),
               "text": store.Column("uint32", ragged=False)}
    if parsed:
        columns["label"] = parsed.column
    key = {"content": content, "labels": labels.labels,
           "label_separator": kind.separator, "label_aliases": list(kind.aliases.items()),
           **encoding.facts(), "long_texts": encoding.long_texts.facts() or {}}

    def encode(examples: List[Tuple[int, Example]]) -> store.Chunk:
        chunk = _encode([example for _, example in examples], encoding, parsed)
        return {**chunk, "text": chunk["text"] + examples[0][0]}

    records = open_or_tokenize(
        split.file, encoding, store_dir, pathlib.Path(split.file).stem, key, columns,
        lambda: enumerate(split.examples(labels)), encode, unit="examples", chunk_size=_CHUNK_EXAMPLES)
    return TextSet(records, labels, files.hash_of_json(content), encoding)


def encode_texts(examples: List[Example], kind: label_types.Kind,
                 encoding: Encoding) -> TextSet:
    """Tokenized examples in memory, without labels; for a model that predicts `kind`."""
    records = store.Records.of_chunk(_encode(examples, encoding, None))
    return TextSet(records, kind, "", encoding)


def _encode(examples: List[Example], encoding: Encoding,
            kind: Optional[label_types.Kind]) -> store.Chunk:
    """Tokenizes examples into a chunk of the store."""
    chunk = encode_texts_and_pairs([example.texts[0] for example in examples],
                                   [(*example.texts, "")[1] for example in examples], encoding)
    if kind:
        chunk["label"] = kind.to_chunk([examples[text].label for text in chunk["text"]])
    return chunk

"""Texts that belong together, tokenized in a store: a record is a text, an example some in a row."""

import dataclasses
import hashlib
import os
import pathlib
from typing import Optional, Sequence

import numpy as np

from encoder.encoding import Encoding, TextCounts, encode_texts_and_pairs, open_or_tokenize
from engine.data import store
from engine.data.batches import Features, Source, token_features
from engine.disk import files, provenance
from engine.disk.parts import in_chunks
from runs.rows import Example
from similarity.files import TextFile

_CHUNK_EXAMPLES = 4096
_KEY_BYTES = 6  # two float32 hold them exactly: 24 bits each


@dataclasses.dataclass(eq=False)
class TextSet:
    """The texts of a file. Made by `load`, or `encode` of texts in memory."""
    # Of the first example the anchor, its positive, its hard negatives; of the second ...
    records: store.Records
    num_texts: int  # of an example; 1 if each text is its own positive
    encoding: Encoding
    content_hash: str = ""  # identifies the file and what is read of it
    file: Optional[TextFile] = None
    query_prefix: str = ""  # before the anchors of the file
    _unique: Sequence[np.ndarray] = ()
    _plain: Sequence[np.ndarray] = ()

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(self.records) // self.num_texts

    def __len__(self) -> int:
        """The number of distinct texts, which are what is predicted."""
        return len(self._distinct[0])

    @property
    def keys(self) -> np.ndarray:
        """A hash of each text's tokens, [examples, texts]; equal texts have equal ones."""
        return self.records.scalars("key").reshape(-1, self.num_texts)

    @property
    def scores(self) -> np.ndarray:
        """The score of each pair, [examples]."""
        return self.records.scalars("score")[::self.num_texts]

    @property
    def numbers(self) -> np.ndarray:
        """Where the texts of each example are in `source`, [examples, texts]."""
        return self._distinct[1].reshape(-1, self.num_texts)

    @property
    def _distinct(self) -> Sequence[np.ndarray]:
        """The first record of each distinct text, and the number of each record's text."""
        if not self._unique:
            _, *self._unique = np.unique(self.records.scalars("key"), return_index=True,
                                         return_inverse=True)
        return self._unique

    @property
    def plain_anchors(self) -> np.ndarray:
        """Where the text of each example's anchor is in `source` without the prefix, [examples]; -1 if it is not there."""
        if not self.query_prefix:
            return self.numbers[:, 0]
        if not self._plain:  # the store has the anchors with the prefix alone; these texts were counted before
            known, counts = self.records.scalars("key", self._distinct[0]), TextCounts(self.encoding.tokenizer.vocab["[UNK]"])
            encoding = self.encoding._replace(counts=counts)
            keys = np.concatenate([
                _encode([Example(example.texts[:1]) for example in chunk], encoding, "")["key"]
                for chunk in in_chunks(self.file.examples(), _CHUNK_EXAMPLES)])
            places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            self._plain = [np.where(known[places] == keys, places, -1)]
        return self._plain[0]

    @property
    def num_left_out(self) -> np.ndarray:
        """The tokens of each example's texts that do not fit, [examples]."""
        return self.records.scalars("num_left_out").reshape(-1, self.num_texts).sum(axis=1)

    @property
    def store_name(self) -> str:
        """The name of the store that `load` has opened; it identifies the tokens."""
        return os.path.basename(self.records.directory)

    def source(self) -> Source:
        """Batches of distinct texts: input_ids, input_mask and segment_ids."""
        records, first = self.records, self._distinct[0]
        return Source(records.lengths("input_ids", first),
                      lambda indices, length: token_features(records, first[indices], length),
                      self.encoding.max_seq_length)

    def training_source(self, *, spread: bool = False) -> Source:
        """Batches of b examples with s texts, two if each text is its own positive.

        Anchors and candidates, an example's other texts, are padded to lengths of their own, t and u.
        Features: anchor_ids and anchor_mask, int32 [b, t]; candidate_ids and candidate_mask, int32
        [b, s - 1, u]; keys, float32 [b, s, 2], the halves of the hash of each text; scores, float32
        [b], of pairs.

        Args:
            spread: whether examples with equal anchors or positives shall not share a step.
        """
        records, count = self.records, self.num_texts

        def padded(name: str, texts: np.ndarray, length: int) -> Features:
            features = token_features(records, texts.ravel(), length)
            return {f"{name}_{part}": features[f"input_{part}"].reshape(*texts.shape, length)
                    for part in ("ids", "mask")}

        def fetch(indices: np.ndarray, t: int, u: int) -> Features:
            texts = indices[:, np.newaxis].astype(np.int64) * count + np.arange(count)
            if count == 1:
                texts = np.repeat(texts, 2, axis=1)
            keys = records.scalars("key", texts)
            return {**padded("anchor", texts[:, 0], t), **padded("candidate", texts[:, 1:], u),
                    "keys": np.stack([keys >> np.uint64(24), keys & np.uint64(2**24 - 1)],
                                     axis=-1).astype(np.float32),
                    "scores": records.scalars("score", texts[:, 0])}

        lengths = records.lengths("input_ids").reshape(-1, count)
        return Source(lengths.max(axis=1), fetch, self.encoding.max_seq_length,
                      keys=self.keys[:, :2] if spread else None,
                      encoded=np.repeat(lengths, 2, axis=1) if count == 1 else lengths)


def load(file: TextFile, encoding: Encoding, query_prefix: str, store_dir: str) -> TextSet:
    """Opens the tokenized texts of a file; tokenizes them if the store does not have them yet.

    Args:
        query_prefix: put before anchors.
    """
    content = [provenance.content_hash(file.path, store_dir), *file.facts(), query_prefix]
    number = store.Column("int32", ragged=False)
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "first_segment_length": number, "num_left_out": number,
               "key": store.Column("uint64", ragged=False),
               "score": store.Column("float32", ragged=False)}
    records = open_or_tokenize(
        file.path, encoding, store_dir, f"texts-{pathlib.Path(file.path).stem}",
        {"content": content, **encoding.facts()}, columns, file.examples,
        lambda examples: _encode(examples, encoding, query_prefix), unit="examples",
        chunk_size=_CHUNK_EXAMPLES)
    return TextSet(records, file.num_texts, encoding, files.hash_of_json(content), file, query_prefix)


def encode(examples: Sequence[Example], encoding: Encoding, query_prefix: str) -> TextSet:
    """Tokenized examples in memory, all with the same number of texts."""
    return TextSet(store.Records.of_chunk(_encode(examples, encoding, query_prefix)),
                   len(examples[0].texts), encoding)


def _encode(examples: Sequence[Example], encoding: Encoding, query_prefix: str) -> store.Chunk:
    count = len(examples[0].texts)
    texts = [query_prefix + text if query_prefix and count > 1 and not number else text
             for example in examples for number, text in enumerate(example.texts)]
    chunk = encode_texts_and_pairs(texts, [""] * len(texts), encoding)
    scores = np.repeat(np.array([example.label or 0.0 for example in examples], np.float32), count)
    ids, lengths = chunk["input_ids"]
    return {"input_ids": (ids, lengths), "key": _keys_of(ids, lengths), "score": scores,
            **{name: chunk[name] for name in ("first_segment_length", "num_left_out")}}


def _keys_of(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A hash of each text's tokens."""
    content, ends = ids.astype(np.uint32).tobytes(), 4 * np.cumsum(lengths)
    return np.array([int.from_bytes(hashlib.blake2b(
        content[end - size:end], digest_size=_KEY_BYTES).digest(), "big")
        for end, size in zip(ends.tolist(), (4 * lengths).tolist())], np.uint64)

"""Records in flat arrays on disk, memory-mapped: written once, read by any number of runs.

A store is a directory with one file per array and a `store.json`. Its name holds a hash of
everything that determines its content, so that it is never stale; it is written under a temporary
name and renamed, so that it is never incomplete. `store.json` has the checksum of each file: a
damaged store is rebuilt. The caller interprets the arrays.
"""

import hashlib
import json
import os
from typing import Any, Callable, Dict, Iterable, Mapping, Union

import numpy as np

from engine import log
from engine.data import store_files
from engine.data.store_files import Chunk, Column, Damaged, RaggedChunk, file_name, open_array
from engine.disk import files
from engine.workers import worker_dirs

FORMAT_VERSION = 2  # 1 had no checksums


class Records:
    """Records by index, over the flat arrays of their columns, in memory or memory-mapped.

    Args:
        num_records: the number of records.
        values: for each column, the values of all records, one after the other.
        offsets: for each ragged column, where each record's values begin, and the end, [n + 1].
    """

    def __init__(self, num_records: int, values: Mapping[str, np.ndarray],
                 offsets: Mapping[str, np.ndarray]):
        self._num_records = num_records
        self._values = values
        self._offsets = offsets

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> "Records":
        """The records of a chunk, in memory."""
        values, offsets = {}, {}
        for name, column in chunk.items():
            if isinstance(column, tuple):
                values[name], lengths = column
                offsets[name] = np.concatenate([[0], np.cumsum(lengths)])
            else:
                values[name] = column
        num_records = len(lengths if isinstance(column, tuple) else column)
        return cls(num_records, values, offsets)

    def __len__(self) -> int:
        return self._num_records

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def flat(self, name: str) -> np.ndarray:
        """All values of a column, one record after the other."""
        return self._values[name]

    def offsets(self, name: str) -> np.ndarray:
        """Where each record's values begin in `flat`, and the end, [n + 1]."""
        return self._offsets[name]

    def lengths(self, name: str, indices: Union[slice, np.ndarray] = slice(None)) -> np.ndarray:
        """Number of values of a ragged column in each record of `indices`."""
        offsets = self._offsets[name]
        return offsets[1:][indices] - offsets[:-1][indices]

    def scalars(self, name: str, indices: Union[slice, np.ndarray] = slice(None)) -> np.ndarray:
        """The value of a column in each record of `indices`."""
        return self._values[name][indices]

    def values(self, name: str, indices: Union[slice, np.ndarray] = slice(None)) -> RaggedChunk:
        """The values of a ragged column in these records, flat, and the number for each record.

        Nothing is copied if `indices` is a slice without a step.
        """
        if isinstance(indices, slice) and indices.step is None:
            first, last, _ = indices.indices(len(self))
            begin, end = self._offsets[name][[first, max(first, last)]]
            return self._values[name][begin:end], self.lengths(name, indices)
        starts, lengths = self._offsets[name][:-1][indices], self.lengths(name, indices)
        # The position of each value in the file: its record's start plus its index in the record.
        positions = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self._values[name][positions + np.arange(len(positions))], lengths

    def padded(self, name: str, indices: np.ndarray, length: int) -> np.ndarray:
        """Records of a ragged column as rows, [len(indices), length], padded with zeros."""
        values, lengths = self.values(name, indices)
        filled = np.arange(length) < lengths[:, np.newaxis]
        rows = np.zeros(filled.shape, values.dtype)
        rows[filled] = values
        return rows


class Store(Records):
    """A finished store, memory-mapped. Made by `open_or_build`.

    Attributes:
        directory: its path.
        facts: JSON values that were stored with it.

    Raises:
        Damaged: a file has changed since it was written.
    """

    def __init__(self, directory: str, columns: Mapping[str, Column]):
        self.directory = directory
        description = store_files.read_description(directory)
        self.facts: Dict[str, Any] = description["facts"]
        values, offsets = {}, {}
        for name, (dtype, ragged) in columns.items():
            values[name] = open_array(directory, file_name(name), dtype)
            if ragged:
                offsets[name] = open_array(directory, file_name(name, "offsets"), "int64")
        super().__init__(description["num_records"], values, offsets)


def open_or_build(root: str, name: str, key: Mapping[str, Any], columns: Mapping[str, Column],
                  chunks: Callable[[], Iterable[Chunk]], *,
                  facts: Callable[[], Mapping[str, Any]] = dict) -> Store:
    """Opens the store of `key`, building it first if there is none, or if it is damaged.

    All workers of a run call it together.

    Args:
        root: the directory of all stores.
        name: a readable name for this one; the hash of `key` is appended.
        key: everything that determines the content, as JSON values.
        columns: the store's columns.
        chunks: called only to build; yields the records in chunks of bounded size, each with
            all columns.
        facts: called after the last chunk; returns JSON values to keep with the store.

    Raises:
        UserError: there is no whole store, and its inputs are damaged or gone; another worker
            opens another store.
    """
    identity = json.dumps([FORMAT_VERSION, key, columns], sort_keys=True)
    digest = hashlib.sha256(identity.encode("utf-8")).hexdigest()[:16]
    directory = os.path.join(root, f"{name}-{digest}")

    def build() -> None:
        # Replaces a damaged store, but not one that another process has just built: both have the
        # same key, and so the same bytes.
        with files.atomic_folder(directory, replaces=os.path.exists(directory)) as draft:
            store_files.write(draft, columns, chunks(), facts)

    worker_dirs.build_once(directory, {"name": name, **key},
                          lambda: None if os.path.exists(directory) else build())
    try:
        return Store(directory, columns)
    except Damaged as damage:
        log.warn(f"the store {directory} is damaged ({damage}): it is built again")
        build()
        return Store(directory, columns)

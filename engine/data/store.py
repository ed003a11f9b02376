"""Records in flat arrays on disk, memory-mapped: written once, read by any number of runs.

A store is a directory with one file per array and a `store.json`. Its name holds a hash of
everything that determines its content, so that it is never stale; it is written under a temporary
name and renamed, so that it is never incomplete. `store.json` has the checksum of each file: a
damaged store is rebuilt. The caller interprets the arrays.
"""

import hashlib
import json
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Union

import numpy as np

from engine import log
from engine.data import store_files
from engine.data.store_files import Chunk, Column, Damaged, RaggedChunk, open_array, path_of
from engine.disk import files
from engine.errors import UserError
from engine.workers import build_once

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

    Args:
        directory: its path.
        columns: its columns.
        build: rebuilds it, if it is damaged.

    Attributes:
        facts: JSON values that were stored with it.
    """

    def __init__(self, directory: str, columns: Mapping[str, Column], build: Callable[[], None]):
        self.directory = directory
        self._columns = columns
        self._build = build
        self._check: Optional[_Check] = None
        try:
            self._map(store_files.read_description(directory, columns))
        except Damaged as damage:
            self._build_again(damage)

    def check(self) -> None:
        """Starts to compare the values with their checksums, in a thread; see `verify`."""
        large = [path_of(self.directory, name) for name, column in self._columns.items()
                 if column.ragged]
        self._check = _Check({path: self._checksums[os.path.basename(path)] for path in large})
        _unverified.add(self)

    def verify(self) -> None:
        """Waits for the comparison; rebuilds the store if it is damaged.

        Raises:
            UserError: it cannot be rebuilt.
        """
        check, self._check = self._check, None
        if check:
            try:
                check.result()
            except Damaged as damage:
                self._build_again(damage)

    def _map(self, description: Mapping[str, Any]) -> None:
        values, offsets = {}, {}
        for name, (dtype, ragged) in self._columns.items():
            values[name] = open_array(path_of(self.directory, name), dtype)
            if ragged:
                offsets[name] = open_array(path_of(self.directory, name, "offsets"), "int64")
        self.facts: Dict[str, Any] = description["facts"]
        self._checksums: Dict[str, int] = description["checksums"]
        super().__init__(description["num_records"], values, offsets)

    def _build_again(self, damage: Exception) -> None:
        log.warn(f"the store {self.directory} is damaged ({damage}): it is built again")
        try:
            self._build()
            self._map(store_files.read_description(self.directory, self._columns))
        except (UserError, Damaged) as error:
            raise UserError(f"the store {self.directory} is damaged ({damage}), and cannot be "
                            f"built again: {error}") from error


_unverified: "weakref.WeakSet[Store]" = weakref.WeakSet()


def verify() -> None:
    """Calls `Store.verify` of every store whose values are still being compared.

    Call it in the main thread, before reading values.
    """
    while _unverified:
        _unverified.pop().verify()


class _Check(threading.Thread):
    """Compares files with their checksums in the background."""

    def __init__(self, checksums: Mapping[str, int]):
        super().__init__(daemon=True)  # a command that fails does not wait for it
        self._checksums = checksums
        self._error: Optional[Exception] = None
        self.start()

    def run(self) -> None:
        try:
            for path, checksum in self._checksums.items():
                store_files.compare(path, checksum)
        except Exception as error:
            self._error = error

    def result(self) -> None:
        """Waits. Raises Damaged, or the error of reading a file."""
        self.join()
        if self._error:
            raise self._error


def open_or_build(root: str, name: str, key: Mapping[str, Any], columns: Mapping[str, Column],
                  chunks: Callable[[], Iterable[Chunk]], *,
                  facts: Callable[[], Mapping[str, Any]] = dict,
                  verifies_later: bool = False) -> Store:
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
        verifies_later: returns while the values of ragged columns are still being compared with
            their checksums; nothing may read them before `verify`. All else is verified.

    Raises:
        UserError: the store is damaged, and its inputs are damaged or gone; another worker opens
            another store.
    """
    identity = json.dumps([FORMAT_VERSION, key, columns], sort_keys=True)
    digest = hashlib.sha256(identity.encode("utf-8")).hexdigest()[:16]
    directory = os.path.join(root, f"{name}-{digest}")

    def build() -> None:
        _build(directory, columns, chunks, facts)

    is_new = not os.path.exists(directory)
    build_once.build_once(directory, {"name": name, **key},
                          lambda: None if os.path.exists(directory) else build())
    store = Store(directory, columns, build)
    if not is_new:
        store.check()
        if not verifies_later:
            store.verify()
    return store


def _build(directory: str, columns, chunks, facts) -> None:
    """Builds a store; replaces a damaged one, but not one that another process has just built.

    Both have the same key, and so the same bytes.
    """
    with files.atomic_folder(directory, replaces=os.path.exists(directory)) as draft:
        store_files.write(draft, columns, chunks(), facts)

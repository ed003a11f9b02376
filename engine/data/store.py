"""Records in flat arrays on disk, memory-mapped: written once, read by any number of runs.

A store is a directory with one file per array and a `store.json`. Its name holds a hash of
everything that determines its content, so that it is never stale; it is written under a
temporary name and renamed, so that it is never incomplete. What the arrays mean is up to
the caller.
"""

import hashlib
import json
import os
import shutil
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Tuple, Union

import numpy as np

from engine import files

FORMAT_VERSION = 1

# ScalarChunk has one value per record, [n]. RaggedChunk has any number per record: the values of
# all n records, one record after the other, and the number of values of each record, [n].
ScalarChunk = np.ndarray
RaggedChunk = Tuple[np.ndarray, np.ndarray]
Chunk = Mapping[str, Union[ScalarChunk, RaggedChunk]]


class Column(NamedTuple):
    """What a store holds under one name."""
    dtype: str  # its name in NumPy: "uint16", "float32", ...
    ragged: bool  # True: any number of values per record; False: exactly one


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
    """A finished store, memory-mapped. `facts` are JSON values that were stored with it."""

    def __init__(self, directory: str):
        self.directory = directory
        description = files.read_json(os.path.join(directory, "store.json"), "store")
        self.facts: Dict[str, Any] = description["facts"]
        values, offsets = {}, {}
        for name, (dtype, ragged) in description["columns"].items():
            values[name] = _map(_path(directory, name), dtype)
            if ragged:
                offsets[name] = _map(_path(directory, name, "offsets"), "int64")
        super().__init__(description["num_records"], values, offsets)


def open_or_build(root: str, name: str, key: Mapping[str, Any], columns: Mapping[str, Column],
                  chunks: Callable[[], Iterable[Chunk]], *,
                  facts: Callable[[], Mapping[str, Any]] = dict) -> Store:
    """Opens the store of `key`, building it first if there is none.

    Args:
        root: the directory of all stores.
        name: the name of this one, for people; the hash of `key` is appended.
        key: everything that determines the content, as JSON values.
        columns: what the store holds.
        chunks: called only to build; yields the records in chunks of bounded size, each
            with every column.
        facts: called after the last chunk; returns JSON values to keep with the store.
    """
    identity = json.dumps([FORMAT_VERSION, key, columns], sort_keys=True)
    digest = hashlib.sha256(identity.encode("utf-8")).hexdigest()[:16]
    directory = os.path.join(root, f"{name}-{digest}")
    if not os.path.exists(directory):
        _build(directory, columns, chunks, facts)
    return Store(directory)


def _build(directory: str, columns, chunks, facts) -> None:
    temporary = f"{directory}.tmp-{os.getpid()}"
    _remove_leftovers(directory)
    os.makedirs(temporary)
    try:
        num_records = _write_arrays(temporary, columns, chunks())
        files.write_json(os.path.join(temporary, "store.json"), {
            "num_records": num_records, "columns": columns, "facts": facts()})
        try:
            os.rename(temporary, directory)
        except OSError:
            # Another process has built the same store in the meantime: same key, same bytes.
            if not os.path.exists(directory):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_arrays(directory: str, columns: Mapping[str, Column], chunks: Iterable[Chunk]) -> int:
    written = {name: open(_path(directory, name), "wb") for name in columns}
    offsets = {name: open(_path(directory, name, "offsets"), "wb")
               for name, column in columns.items() if column.ragged}
    ends = dict.fromkeys(offsets, 0)
    num_records = 0
    try:
        for file in offsets.values():
            np.zeros(1, "int64").tofile(file)
        for chunk in chunks:
            for name, column in columns.items():
                values = chunk[name]
                if column.ragged:
                    values, lengths = values
                    (ends[name] + np.cumsum(lengths, dtype="int64")).tofile(offsets[name])
                    ends[name] += int(lengths.sum())
                values.astype(column.dtype, copy=False).tofile(written[name])
            num_records += len(lengths if column.ragged else values)
    finally:
        for file in (*written.values(), *offsets.values()):
            file.close()
    return num_records


def _remove_leftovers(directory: str) -> None:
    """Removes what builders of this store left behind when they were killed."""
    root, name = os.path.split(directory)
    for entry in os.listdir(root):
        if entry.startswith(f"{name}.tmp-") and not _is_running(int(entry.rsplit("-", 1)[1])):
            shutil.rmtree(os.path.join(root, entry), ignore_errors=True)


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _path(directory: str, name: str, part: str = "values") -> str:
    return os.path.join(directory, f"{name}.{part}")


def _map(path: str, dtype: str) -> np.ndarray:
    if not os.path.getsize(path):  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # As a plain array: a memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))

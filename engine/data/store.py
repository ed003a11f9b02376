"""Records in flat arrays on disk, memory-mapped: written once, read by any number of runs.

A store is a directory with one file per array, and `store.json`, which describes them and has a
checksum of each file and of itself: a damaged store is rebuilt. Its name holds a hash of everything
that determines its content, so that it is never stale; it is written under a temporary name and
renamed, so that it is never incomplete. The caller interprets the arrays.
"""

import contextlib
import json
import os
import zlib
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np

from engine import log
from engine.disk import files
from engine.errors import UserError
from engine.workers import worker_dirs

FORMAT_VERSION = 2  # 1 had no checksums
_DESCRIPTION = "store.json"
_READ_BYTES = 1 << 22

# ScalarChunk has one value per record, [n]. RaggedChunk has any number per record: the values of
# all n records, one record after the other, and the number of values of each record, [n].
ScalarChunk = np.ndarray
RaggedChunk = Tuple[np.ndarray, np.ndarray]
Chunk = Mapping[str, Union[ScalarChunk, RaggedChunk]]


class Column(NamedTuple):
    """The type of a column of a store."""
    dtype: str  # its name in NumPy: "uint16", "float32", ...
    ragged: bool  # True: any number of values per record; False: exactly one


class _Damaged(UserError):
    """A file of a store has changed since it was written; the message names it."""


def chunk_of(records: Sequence[Mapping[str, Any]], columns: Mapping[str, Column]) -> Chunk:
    """Records as a chunk. A value is a number; in a ragged column, a sequence of numbers."""
    chunk: Dict[str, Union[ScalarChunk, RaggedChunk]] = {}
    for name, (dtype, is_ragged) in columns.items():
        values = [record[name] for record in records]
        if is_ragged:
            chunk[name] = (np.concatenate([*values, np.zeros(0, dtype)]).astype(dtype),
                           np.array([len(value) for value in values], np.int64))
        else:
            chunk[name] = np.array(values, dtype)
    return chunk


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
    """

    def __init__(self, directory: str, columns: Mapping[str, Column]):
        self.directory = directory
        description = _read_description(directory)
        self.facts: Dict[str, Any] = description["facts"]
        values, offsets = {}, {}
        for name, (dtype, is_ragged) in columns.items():
            values[name] = open_array(directory, _file_name(name), dtype)
            if is_ragged:
                offsets[name] = open_array(directory, _file_name(name, "offsets"), "int64")
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
    """
    identity = json.dumps([FORMAT_VERSION, key, columns], sort_keys=True)
    directory = os.path.join(root, f"{name}-{files.hash_of(identity.encode('utf-8'))[:16]}")

    def build() -> None:
        # Replaces a damaged store, but not one that another process has just built: both have the
        # same key, and so the same bytes.
        with files.atomic_folder(directory, replaces=os.path.exists(directory)) as draft:
            _write(draft, columns, chunks(), facts)

    worker_dirs.build_once(directory, {"name": name, **key},
                          lambda: None if os.path.exists(directory) else build())
    try:
        return Store(directory, columns)
    except _Damaged as damage:
        log.warn(f"the store {directory} is damaged ({damage}): it is built again")
        build()
        return Store(directory, columns)


def _write(directory: str, columns: Mapping[str, Column], chunks: Iterable[Chunk],
          facts: Callable[[], Mapping[str, Any]]) -> None:
    """Writes all files into an empty directory."""
    num_records = _write_arrays(directory, columns, chunks)
    checksums = {name: _checksum_of_file(os.path.join(directory, name))
                 for name in sorted(os.listdir(directory))}
    description = {"num_records": num_records, "columns": columns, "facts": facts(),
                   "checksums": checksums}
    files.write_json(os.path.join(directory, _DESCRIPTION),
                     {**description, "checksum": _checksum_of(description)})


def _write_arrays(directory: str, columns: Mapping[str, Column], chunks: Iterable[Chunk]) -> int:
    """Writes the files of all columns; returns the number of records."""
    ends = {name: 0 for name, column in columns.items() if column.ragged}
    num_records = 0
    with contextlib.ExitStack() as stack:
        opened = {name: stack.enter_context(open(os.path.join(directory, name), "wb"))
                  for name in [*map(_file_name, columns),
                               *(_file_name(name, "offsets") for name in ends)]}

        def append(name: str, values: np.ndarray, dtype: str) -> None:
            # Not `tofile`, whose errors do not say that the disk is full.
            opened[name].write(values.astype(dtype, copy=False).tobytes())

        for name in ends:
            append(_file_name(name, "offsets"), np.zeros(1), "int64")
        for chunk in chunks:
            for name, column in columns.items():
                values = chunk[name]
                if column.ragged:
                    values, lengths = values
                    append(_file_name(name, "offsets"),
                           ends[name] + np.cumsum(lengths, dtype="int64"), "int64")
                    ends[name] += int(lengths.sum())
                append(_file_name(name), values, column.dtype)
            num_records += len(lengths if column.ragged else values)
    return num_records


def _read_description(directory: str) -> Mapping[str, Any]:
    """The content of store.json, once all files have been compared with their checksums."""
    path = os.path.join(directory, _DESCRIPTION)
    try:
        description = files.read_record(path, "store", {"checksum": int})
    except UserError as error:
        raise _Damaged(str(error)) from error
    if description.pop("checksum") != _checksum_of(description):
        raise _Damaged(f"{path} is not as it was written")
    for name, checksum in description["checksums"].items():
        path = os.path.join(directory, name)
        if not os.path.isfile(path) or _checksum_of_file(path) != checksum:
            raise _Damaged(f"{path} is missing, or not as it was written")
    return description


def _checksum_of(description: Mapping[str, Any]) -> int:
    as_read = json.loads(json.dumps(description))  # tuples become lists, keys texts
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode("utf-8"))


def _checksum_of_file(path: str) -> int:
    checksum = 0
    with files.name_disk_errors(path), open(path, "rb") as file:
        for block in iter(lambda: file.read(_READ_BYTES), b""):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _file_name(column: str, part: str = "values") -> str:
    """The file of a column's values or, as the part "offsets", of its records' starts."""
    return f"{column}.{part}"


def open_array(directory: str, name: str, dtype: str) -> np.ndarray:
    """The values in a file, memory-mapped."""
    path = os.path.join(directory, name)
    if not os.path.getsize(path):  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # As a plain array: a memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))

"""Records in flat arrays on disk, memory-mapped: written once, read by any number of runs.

A store is a folder (`artifact.Folder`) with one file per array, and `store.json`, which describes them:
never stale, never incomplete, and a damaged one is made again. The caller interprets the arrays.
"""

import contextlib
import io
import os
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np

from engine.disk.artifact import ODD, Folder, is_needed
from engine.workers import worker_dirs

FORMAT_VERSION = 2  # 1 had no checksums
_DESCRIPTION = "store.json"

# ScalarChunk has one value per record, [n]. RaggedChunk has any number per record: the values of
# all n records, one record after the other, and the number of values of each record, [n].
ScalarChunk = np.ndarray
RaggedChunk = Tuple[np.ndarray, np.ndarray]
Chunk = Mapping[str, Union[ScalarChunk, RaggedChunk]]


class Column(NamedTuple):
    """The type of a column of a store."""
    dtype: str  # its name in NumPy: "uint16", "float32", ...
    ragged: bool  # True: any number of values per record; False: exactly one


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

    def __init__(self, folder: Folder, columns: Mapping[str, Column]):
        self.directory = directory = folder.path
        description = folder.record()
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
    folder = Folder(root, name, [FORMAT_VERSION, key, columns], _DESCRIPTION)

    def build() -> None:
        if is_needed(folder, replaces=ODD):
            entries: Dict[str, Any] = {}
            with folder.written(entries) as draft:
                entries["num_records"] = _write_arrays(draft, columns, chunks())
                entries.update(columns=columns, facts=facts())

    worker_dirs.build_once(folder.path, {"name": name, **key}, build)
    return Store(folder, columns)


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


def array_header(num_rows: int, width: int) -> bytes:
    """What precedes the values [rows, width], float32, in NumPy's format, which `np.load` reads."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {
        "descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (num_rows, width)})
    return header.getvalue()

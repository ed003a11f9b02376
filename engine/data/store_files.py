"""The files of a store: flat arrays, written with their checksums and compared with them.

One file per array, and `store.json`, which describes them and has a checksum of each file and of
itself.
"""

import contextlib
import json
import os
import zlib
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Tuple, Union

import numpy as np

from engine.disk import files
from engine.errors import UserError

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


class Damaged(Exception):
    """A file of a store has changed since it was written; the message names it."""


def write(directory: str, columns: Mapping[str, Column], chunks: Iterable[Chunk],
          facts: Callable[[], Mapping[str, Any]]) -> None:
    """Writes all files into an empty directory. `facts` is called after the last chunk."""
    num_records, checksums = _write_arrays(directory, columns, chunks)
    description = {"num_records": num_records, "columns": columns, "facts": facts(),
                   "checksums": checksums}
    files.write_json(os.path.join(directory, _DESCRIPTION),
                     {**description, "checksum": _checksum_of(description)})


class _ArrayFile:
    """Writes a file of a store and computes its checksum."""

    def __init__(self, path: str):
        self._file = open(path, "wb")
        self.checksum = 0

    def write(self, values: np.ndarray, dtype: str) -> None:
        # Not `tofile`, whose errors do not say that the disk is full.
        content = values.astype(dtype, copy=False).tobytes()
        self.checksum = zlib.crc32(content, self.checksum)
        self._file.write(content)

    def close(self) -> None:
        self._file.close()


def _write_arrays(directory: str, columns: Mapping[str, Column],
                  chunks: Iterable[Chunk]) -> Tuple[int, Dict[str, int]]:
    """Writes the files of all columns; returns the number of records and the checksums."""
    ends = {name: 0 for name, column in columns.items() if column.ragged}
    num_records = 0
    with contextlib.ExitStack() as stack:
        def create(name: str, part: str) -> _ArrayFile:
            return stack.enter_context(contextlib.closing(
                _ArrayFile(path_of(directory, name, part))))

        written = {name: create(name, "values") for name in columns}
        offsets = {name: create(name, "offsets") for name in ends}
        for file in offsets.values():
            file.write(np.zeros(1), "int64")
        for chunk in chunks:
            for name, column in columns.items():
                values = chunk[name]
                if column.ragged:
                    values, lengths = values
                    offsets[name].write(ends[name] + np.cumsum(lengths, dtype="int64"), "int64")
                    ends[name] += int(lengths.sum())
                written[name].write(values, column.dtype)
            num_records += len(lengths if column.ragged else values)
    return num_records, {
        os.path.basename(path_of(directory, name, part)): file.checksum
        for part, group in (("values", written), ("offsets", offsets))
        for name, file in group.items()}


def read_description(directory: str, columns: Mapping[str, Column]) -> Mapping[str, Any]:
    """The content of store.json, verified against the files' sizes and checksums.

    Leaves out the values of ragged columns, which are large: see `compare`.

    Raises:
        Damaged: a file has changed since it was written.
    """
    path = os.path.join(directory, _DESCRIPTION)
    try:
        description = files.read_record(path, "store", {"checksum": int})
    except UserError as error:
        raise Damaged(str(error)) from error
    if description.pop("checksum") != _checksum_of(description):
        raise Damaged(f"{path} is not as it was written")
    num_records, checksums = description["num_records"], description["checksums"]
    for name, column in columns.items():
        values, offsets = path_of(directory, name), path_of(directory, name, "offsets")
        num_values = num_records
        if column.ragged:
            _require_size(offsets, 8 * (num_records + 1))
            compare(offsets, checksums[os.path.basename(offsets)])
            num_values = int(open_array(offsets, "int64")[-1])
        _require_size(values, num_values * np.dtype(column.dtype).itemsize)
        if not column.ragged:
            compare(values, checksums[os.path.basename(values)])
    return description


def _checksum_of(description: Mapping[str, Any]) -> int:
    as_read = json.loads(json.dumps(description))  # tuples become lists, keys texts
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode("utf-8"))


def _require_size(path: str, size: int) -> None:
    if not os.path.isfile(path):
        raise Damaged(f"{path} is not there")
    if os.path.getsize(path) != size:
        raise Damaged(f"{path} has {os.path.getsize(path):,} bytes of {size:,}")


def compare(path: str, checksum: int) -> None:
    """Raises Damaged unless the file's content has this checksum."""
    actual = 0
    with files.name_disk_errors(path), open(path, "rb") as file:
        for block in iter(lambda: file.read(_READ_BYTES), b""):
            actual = zlib.crc32(block, actual)
    if actual != checksum:
        raise Damaged(f"{path} is not as it was written")


def path_of(directory: str, name: str, part: str = "values") -> str:
    """The path of a column's values or, as the part "offsets", of its records' starts."""
    return os.path.join(directory, f"{name}.{part}")


def open_array(path: str, dtype: str) -> np.ndarray:
    """The values in a file, memory-mapped."""
    if not os.path.getsize(path):  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # As a plain array: a memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))

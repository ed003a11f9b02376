"""The files of a store: flat arrays, written with their checksums and compared with them.

One file per array, and `store.json`, which describes them and has a checksum of each file and of
itself.
"""

import contextlib
import json
import os
import zlib
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

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


class Damaged(UserError):
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


def write(directory: str, columns: Mapping[str, Column], chunks: Iterable[Chunk],
          facts: Callable[[], Mapping[str, Any]]) -> None:
    """Writes all files into an empty directory. `facts` is called after the last chunk."""
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
                  for name in [*map(file_name, columns),
                               *(file_name(name, "offsets") for name in ends)]}

        def append(name: str, values: np.ndarray, dtype: str) -> None:
            # Not `tofile`, whose errors do not say that the disk is full.
            opened[name].write(values.astype(dtype, copy=False).tobytes())

        for name in ends:
            append(file_name(name, "offsets"), np.zeros(1), "int64")
        for chunk in chunks:
            for name, column in columns.items():
                values = chunk[name]
                if column.ragged:
                    values, lengths = values
                    append(file_name(name, "offsets"),
                           ends[name] + np.cumsum(lengths, dtype="int64"), "int64")
                    ends[name] += int(lengths.sum())
                append(file_name(name), values, column.dtype)
            num_records += len(lengths if column.ragged else values)
    return num_records


def read_description(directory: str) -> Mapping[str, Any]:
    """The content of store.json, once all files have been compared with their checksums.

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
    for name, checksum in description["checksums"].items():
        path = os.path.join(directory, name)
        if not os.path.isfile(path):
            raise Damaged(f"{path} is not there")
        if _checksum_of_file(path) != checksum:
            raise Damaged(f"{path} is not as it was written")
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


def file_name(column: str, part: str = "values") -> str:
    """The file of a column's values or, as the part "offsets", of its records' starts."""
    return f"{column}.{part}"


def open_array(directory: str, name: str, dtype: str) -> np.ndarray:
    """The values in a file, memory-mapped."""
    path = os.path.join(directory, name)
    if not os.path.getsize(path):  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    # As a plain array: a memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))

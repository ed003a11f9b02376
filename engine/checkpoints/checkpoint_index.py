"""The index of a checkpoint, read without TensorFlow, whose reader ends the process at a wrong shape.

It is a table of LevelDB: blocks of rows, a block with the places of these blocks, and a footer with
the place of that one.
"""

import os
import struct
from typing import Dict, Iterator, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf import message
from tensorflow.core.protobuf import tensor_bundle_pb2

from engine.disk import files
from engine.errors import UserError

Entry = tensor_bundle_pb2.BundleEntryProto

_FOOTER_BYTES = 48
_MOST_BYTES = 1 << 22  # of an index: some 40,000 variables
_LONGEST_NAME = 1 << 10
_MOST_DIMENSIONS = 254  # TensorFlow's
# Of other types the reader would make objects, of whatever bytes.
_TEXT, *_NUMBERS = (tf.as_dtype(name).as_datatype_enum for name in (
    "string", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128"))


def read(path: str) -> Dict[str, Entry]:
    """The dtype, shape and size of each variable, by its name; without texts, which no model reads."""
    content = files.read_whole(path, "the index", _MOST_BYTES)
    try:
        _, _, *place, _ = _varints(content[-_FOOTER_BYTES:], 0, 4)
        entries = {name.decode("utf-8", "replace"): Entry.FromString(value)
                   for _, block in _rows(content, *place)
                   for name, value in _rows(content, *_varints(block, 0, 2)[:2])}
    except (IndexError, ValueError, struct.error, message.DecodeError) as error:
        raise UserError(f"{path} is no index of a checkpoint") from error
    del entries[""]  # of the table itself
    for name, entry in entries.items():
        _check(entry, f"{path}: {name}")
    return {name: entry for name, entry in entries.items() if entry.dtype != _TEXT}


def _check(entry: Entry, where: str) -> None:
    shape = np.array([dimension.size for dimension in entry.shape.dim])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if ((shape < 0).any() or len(shape) > _MOST_DIMENSIONS or np.maximum(shape, 1.0).prod() >= 2**63
            or entry.dtype not in (_TEXT, *_NUMBERS) or entry.slices or entry.size > memory):
        raise UserError(f"{where} is no whole array of numbers that this machine could hold: type "
                        f"{entry.dtype}, {entry.size:,} bytes, shape {shape.tolist()}")


def _rows(content: bytes, offset: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
    """The names and values of a block. A name begins as the one before; only the rest is written."""
    block, compression = content[offset:offset + size], content[offset + size]
    count, = struct.unpack("<I", block[-4:])
    end = size - 4 * count - 4
    starts = set(struct.unpack(f"<{count}I", block[end:-4]))  # of rows at which a search begins
    name, position = b"", 0
    while position < end:
        starts.discard(position)
        shared, own, length, position = _varints(block, position, 3)
        if shared + own > _LONGEST_NAME:
            raise ValueError
        name = name[:shared] + block[position:position + own]
        position += own + length
        yield name, block[position - length:position]
    if compression or starts:
        raise ValueError


def _varints(content: bytes, position: int, count: int) -> Tuple[int, ...]:
    """`count` numbers, in LevelDB's variable lengths, and the position after them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while content[position] > 127 and shift < 63:
            number |= (content[position] & 127) << shift
            position, shift = position + 1, shift + 7
        numbers.append(number | content[position] << shift)
        position += 1
    return (*numbers, position)

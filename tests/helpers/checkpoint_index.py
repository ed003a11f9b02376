"""Writes the index of a checkpoint with any entries, their checksums right."""

import struct
from typing import Any, Mapping, Sequence

from tensorflow.core.protobuf import tensor_bundle_pb2

_MAGIC = 0xdb4775248b80fb57
_HEADER = b"\x08\x01\x1a\x02\x08\x01"  # one file of values, version 1

Entry = tensor_bundle_pb2.BundleEntryProto


def entry(shape: Sequence[int], dtype: int = 1, slices: Sequence[Sequence[int]] = (), **more: Any) -> Entry:
    """A variable without values; each slice is a start and a length for each dimension."""
    variable = Entry(dtype=dtype, **more)
    for size in shape:
        variable.shape.dim.add(size=size)
    for pairs in slices:
        extents = variable.slices.add()
        for start, length in pairs:
            extents.extent.add(start=start, length=length)
    return variable


def write(prefix: str, entries: Mapping[Any, Entry], values: bytes = b"", compression: int = 0,
          restarts: Sequence[int] = (0,)) -> None:
    """Writes PREFIX.index, and `values` as the file of values."""
    rows = [(b"", _HEADER), *sorted(
        (name if isinstance(name, bytes) else name.encode(), variable.SerializeToString())
        for name, variable in entries.items())]
    content = bytearray()
    places = []
    for block in (rows, []):  # the second describes the file, and is empty
        places.append(_append(content, block, compression, restarts if block else (0,)))
    index = _append(content, [(rows[-1][0] + b"~", places[0])], 0, (0,))
    footer = (places[1] + index).ljust(40, b"\0") + struct.pack("<Q", _MAGIC)
    with open(f"{prefix}.index", "wb") as file:
        file.write(bytes(content) + footer)
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.write(values)


def _append(content, rows, compression, restarts) -> bytes:
    """Appends a block; returns its place."""
    block = b"".join(b"\0" + _varint(len(name)) + _varint(len(value)) + name + value
                     for name, value in rows)
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    place = _varint(len(content)) + _varint(len(block))
    block += bytes([compression])
    content += block + struct.pack("<I", masked(crc32c(block)))
    return place


def _varint(number: int) -> bytes:
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    return bytes(content + bytes([number]))


def crc32c(content: bytes) -> int:
    checksum = 0xffffffff
    for byte in content:
        checksum = _TABLE[(checksum ^ byte) & 255] ^ (checksum >> 8)
    return checksum ^ 0xffffffff


def masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xa282ead8) & 0xffffffff


def _row(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (0x82f63b78 if number & 1 else 0)
    return number


_TABLE = [_row(number) for number in range(256)]

"""Arrays → serialized `tf.train.Example` messages, many at a time and without TensorFlow.

All examples of a set have the same features with the same number of values, so that a few
array operations serialize a batch. The layout is that of TensorFlow's example.proto and
feature.proto in the wire format of protocol buffers.
"""

import functools
from typing import Iterator, List, Mapping

import numpy as np

_LENGTH_DELIMITED = 2  # wire type
_FLOAT_LIST, _INT64_LIST = 2, 3  # fields of Feature


def serialize(features: Mapping[str, np.ndarray]) -> List[bytes]:
    """One message for each row.

    Args:
        features: by name, each [number of examples, number of values]; float32, or integers
            from 0 up to 2**28 - 1.
    """
    columns = [_entries(name, values) for name, values in sorted(features.items())]
    return [_delimited(1, b"".join(row)) for row in zip(*columns)]


def _entries(name: str, values: np.ndarray) -> Iterator[bytes]:
    """For each row its entry in the map from names to features."""
    if values.dtype == np.float32:
        kind, lengths = _FLOAT_LIST, np.full(len(values), 4 * values.shape[1])
        packed = values.astype("<f4").tobytes()
    else:
        kind, (packed, lengths) = _INT64_LIST, _varints(values)
    ends = np.cumsum(lengths).tolist()
    for start, end in zip([0] + ends[:-1], ends):
        yield _entry_header(name, kind, end - start) + packed[start:end]


def _varints(values: np.ndarray):
    """The rows in base 128, the low digits first, and the number of bytes of each row."""
    sizes = 1 + sum((values >= 1 << shift).astype(np.int64) for shift in (7, 14, 21))
    flat, flat_sizes = values.ravel(), sizes.ravel()
    starts = np.cumsum(flat_sizes) - flat_sizes
    packed = np.empty(flat_sizes.sum(), np.uint8)
    for digit in range(flat_sizes.max() if len(flat_sizes) else 0):
        has_digit = flat_sizes > digit
        more_follow = (flat_sizes[has_digit] > digit + 1).astype(np.uint8) << 7
        packed[starts[has_digit] + digit] = flat[has_digit] >> 7 * digit & 127 | more_follow
    return packed.tobytes(), sizes.sum(axis=1)


@functools.lru_cache(maxsize=4096)  # lengths vary by a few hundred
def _entry_header(name: str, kind: int, length: int) -> bytes:
    """The bytes of an entry that precede `length` bytes of packed values."""
    header = b""
    for field in (1, kind, 2):  # the values in a list, in a feature, in an entry of the map
        header = _prefix(field, len(header) + length) + header
    header = _delimited(1, name.encode("ascii")) + header
    return _prefix(1, len(header) + length) + header


def _delimited(field: int, content: bytes) -> bytes:
    return _prefix(field, len(content)) + content


def _prefix(field: int, length: int) -> bytes:
    """What precedes `length` bytes of a field."""
    prefix = [field << 3 | _LENGTH_DELIMITED]
    while length >= 128:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes([*prefix, length])

"""The lengths in files of records (TFRecords, curves), before TensorFlow allocates as much as they say."""

import os
import struct
import sys

from engine.disk import files
from engine.errors import UserError

_LENGTH = struct.Struct("<Q")  # a record begins with its length in bytes
_FRAME_BYTES = 16  # around a record's content: its length, and checksums of length and content


def check(path: str, *, num_records: int = sys.maxsize, beyond: int = 0) -> None:
    """Raises a UserError if one of the first records goes over `beyond` bytes beyond the file's end."""
    try:
        with files.open_regular(path, "file") as file:
            size = os.fstat(file.fileno()).st_size
            start = number = 0
            while start + _LENGTH.size <= size and number < num_records:
                file.seek(start)
                length, = _LENGTH.unpack(file.read(_LENGTH.size))
                start += length + _FRAME_BYTES
                number += 1
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if start > size + beyond:
        is_what = "no TFRecord file, leave it out" if number == 1 else "damaged"
        raise UserError(f"{path} is {is_what}: record {number:,} goes {start - size:,} bytes beyond its end")

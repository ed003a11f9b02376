"""Lines of text files, and parts: ranges of bytes that begin and end where records do.

A part is found without reading what is before it, except in CSV, whose quotes must be counted.
"""

import hashlib
import os
from functools import lru_cache
from typing import BinaryIO, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.errors import UserError

# What a part has whole: lines, rows of CSV, or documents with blank lines between them.
LINES, CSV_ROWS, DOCUMENTS = "lines", "rows of CSV", "documents"

LINE_BYTES = 1 << 24  # the longest line: a file without line ends would fill the memory
_BLOCK_BYTES = 1 << 20


class Part(NamedTuple):
    """The records of a file that begin in a range of its bytes. Can be opened like its path."""
    path: str
    start: int
    stop: int

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path


class LineNumber:
    """The number of a line in its file, from 1. The lines before it are counted only if it is used."""

    def __init__(self, path: str, offset: int, index: int):
        """`index`, from 1, among the lines from the byte `offset` on."""
        self._path, self._offset, self._index = path, offset, index

    def __int__(self) -> int:
        return _count(self._path, self._offset, b"\n") + self._index

    def __str__(self) -> str:
        return str(int(self))


def read_line(file: BinaryIO, path: str, number: object) -> bytes:
    """The next line with its end; b"" at the end of the file.

    Args:
        file: an open file, or whatever has a `readline`.
        path, number: of the file and of the line, for the UserError if the line is over LINE_BYTES.
    """
    line = file.readline(LINE_BYTES + 1)
    if len(line) > LINE_BYTES:
        raise UserError(f"{path}, line {number}: longer than {LINE_BYTES:,} bytes; put line ends "
                        "between its texts")
    return line


def parts_of(paths: Sequence[str], index: int, count: int) -> List[Part]:
    """The part number `index`, from 0, of `count` parts of about as many bytes of these files together.

    A compressed file (.gz) cannot be cut: it is in the part in which it begins.
    """
    sizes = [os.path.getsize(path) for path in paths]
    first, last = (sum(sizes) * number // count for number in (index, index + 1))
    parts, begin = [], 0
    for path, size in zip(paths, sizes):
        if path.endswith(".gz"):
            if first <= begin < last:
                parts.append(Part(path, 0, size))
        elif first < begin + size and begin < last:
            parts.append(Part(path, max(first - begin, 0), min(last - begin, size)))
        begin += size
    return parts


def lines_in(file: BinaryIO, part: Part, records: str) -> Iterator[Tuple[object, bytes]]:
    """The number and the bytes of each line of a part's records.

    Args:
        file: the part's, opened.
        records: LINES, CSV_ROWS or DOCUMENTS. A document belongs to the part in which the blank line
            before it begins.
    """
    offset = position = _first_record(file, part, records)
    in_quotes, index = False, 0
    while position < part.stop or in_quotes or records == DOCUMENTS:
        index += 1
        number = LineNumber(part.path, offset, index) if offset else index
        line = read_line(file, part.path, number)
        if not line or records == DOCUMENTS and position >= part.stop and not line.strip():
            return
        yield number, line
        position += len(line)
        in_quotes ^= records == CSV_ROWS and line.count(b'"') % 2 == 1


def hash_of(part: Part, records: Optional[str]) -> str:
    """SHA-256 of the lines of a part's records, in hex. `records`: None: by the name of the file."""
    records = records or (CSV_ROWS if part.path.lower().endswith(".csv") else LINES)
    digest = hashlib.sha256()
    with open(part, "rb") as file:
        for _, line in lines_in(file, part, records):
            digest.update(line)
    return digest.hexdigest()


def _first_record(file: BinaryIO, part: Part, records: str) -> int:
    """Moves the file to the part's first record; returns the offset, or `part.stop` at the end of the file."""
    def skipped() -> bytes:
        return read_line(file, part.path, f"at byte {position:,}")

    if part.start == 0:
        return 0
    position = file.seek(part.start - 1)
    position += len(skipped())
    if records == CSV_ROWS:
        in_quotes = _count(part.path, position, b'"') % 2 == 1
        while in_quotes:
            line = skipped()
            position += len(line)
            in_quotes = bool(line) and line.count(b'"') % 2 == 0
    while records == DOCUMENTS:
        is_outside = position >= part.stop
        line = skipped()
        position += len(line)
        if is_outside or not line:
            file.seek(0, os.SEEK_END)
            return position
        if not line.strip():
            break
    return position


@lru_cache(maxsize=64)
def _count(path: str, end: int, byte: bytes) -> int:
    """How often a byte occurs in the first `end` bytes of a file."""
    count = 0
    with open(path, "rb") as file:
        while end > 0:
            block = file.read(min(_BLOCK_BYTES, end))
            if not block:
                break
            count += block.count(byte)
            end -= len(block)
    return count

"""Cuts the input: files into parts, which begin and end where records do, and streams into chunks.

A part is found without reading what is before it, except in CSV, whose quotes must be counted. A chunk
has a bounded size, to be processed in bounded memory. Lines of standard input come as they arrive, so
that a single line is answered at once.
"""

import collections
import hashlib
import io
import os
import select
from concurrent import futures
from functools import lru_cache
from typing import (
    BinaryIO, Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar)

from engine.errors import UserError

# What a part has whole: lines, rows of CSV, or documents with blank lines between them.
LINES, CSV_ROWS, DOCUMENTS = "lines", "rows of CSV", "documents"

LINE_BYTES = 1 << 24  # the longest line: a file without line ends would fill the memory
_BLOCK_BYTES = 1 << 20

Item = TypeVar("Item")


class Part(NamedTuple):
    """The records of a file that begin in a range of its bytes. Can be opened like its path."""
    path: str
    start: int
    stop: int

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path


class LineNumber(NamedTuple):
    """The number of a line in its file, from 1. The lines before it are counted only if it is used."""
    path: str
    offset: int
    place: int  # from 1, among the lines from this byte on

    def __int__(self) -> int:
        return _count(self.path, self.offset, b"\n") + self.place

    def __str__(self) -> str:
        return str(int(self))


def read_line(file: BinaryIO, path: str, number: object) -> bytes:
    """The next line with its end; b"" at the end of the file.

    Args:
        file: an open file, or whatever has a `readline`.
        path, number: the file and the line, for the UserError about a line of over LINE_BYTES.
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


class ArrivingLines:
    """The lines of a pipe, a terminal or a file, in bytes.

    `must_wait` tells its caller to process the collected lines before it reads on; it
    is never true for a regular file.

    Args:
        descriptor: the open file; default: standard input.
    """

    def __init__(self, descriptor: int = 0):
        self._descriptor = descriptor
        self._lines: Deque[bytes] = collections.deque()
        self._begun = bytearray()  # an incomplete line
        self._is_open = True

    def readline(self, size: int) -> bytes:
        """The next line with its end; b"" at the end. One of over LINE_BYTES comes in pieces."""
        while not self._lines and self._is_open:
            self._read()
        return self._lines.popleft() if self._lines else b""

    def must_wait(self) -> bool:
        """Whether the next line, or the end, has not arrived yet."""
        while not self._lines and self._is_open:
            if not select.select([self._descriptor], [], [], 0)[0]:
                return True
            self._read()
        return False

    def _read(self) -> None:
        block = os.read(self._descriptor, _BLOCK_BYTES)
        self._is_open = bool(block)
        self._begun += block
        if b"\n" in block or len(self._begun) > LINE_BYTES or not block:
            lines = io.BytesIO(self._begun).readlines()
            is_begun = block and not lines[-1].endswith(b"\n") and len(lines[-1]) <= LINE_BYTES
            self._begun = bytearray(lines.pop() if is_begun else b"")
            self._lines.extend(lines)


def in_chunks(items: Iterable[Item], size: int,
              size_of: Callable[[Item], int] = lambda item: 1,
              arriving: Optional[ArrivingLines] = None) -> Iterator[List[Item]]:
    """Yields all items in order, in lists of at least `size` in total.

    The size of an item is 1, or `size_of(item)`. A list is smaller at the end, or if the next item has
    not arrived yet; none is empty.
    """
    chunk, total = [], 0
    for item in items:
        chunk.append(item)
        total += size_of(item)
        if total >= size or arriving and arriving.must_wait():
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next one while the caller handles one.

    Not for lines that arrive: at the end of the process the thread would wait for the next one.
    """
    end = object()
    with futures.ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, end)
        while True:
            item = following.result()
            if item is end:
                return
            following = thread.submit(next, items, end)
            yield item

"""Words of similar meaning: the nearest neighbours of a word among the vectors of a text file.

The file (GloVe's format, or word2vec's with its header line) is read once, line by line,
into a store of normalised vectors that is memory-mapped afterwards: two million words cost
page cache, not memory. Knows nothing of texts.
"""

import hashlib
import os
import re
import warnings
from typing import Iterator, List, Sequence, Tuple

import numpy as np

from engine.data import store, text_files
from engine.data.chunks import in_chunks
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter

_LINES_AT_A_TIME = 4096
# The size of the matrix of cosines between words: 8 MB.
_QUERIES_AT_A_TIME = 256
_ROWS_AT_A_TIME = 8192

_COUNT = re.compile(r"\d{1,18}", re.ASCII)  # of words or dimensions, in word2vec's header

_COLUMNS = {"word": store.Column("uint8", ragged=True),  # UTF-8
            "hash": store.Column("uint64", ragged=False),
            "vector": store.Column("float32", ragged=True)}


class WordVectors:
    """Word vectors and their nearest neighbours. Made by `open_vectors`."""

    def __init__(self, records: store.Records):
        self._records = records
        flat, lengths = records.values("vector")
        self._vectors = flat.reshape(len(records), -1)  # [words, dimension], normalised
        hashes = records.scalars("hash")
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        # If a word occurs twice, its first vector counts.
        self._is_repeated = np.zeros(len(records), bool)
        self._is_repeated[self._order[1:][self._hashes[1:] == self._hashes[:-1]]] = True

    def __len__(self) -> int:
        return len(self._records)

    def rows_of(self, words: Sequence[str]) -> np.ndarray:
        """The row of each word, [n]; -1 for a word without a vector."""
        asked_for = _hashes_of(words)
        positions = np.minimum(np.searchsorted(self._hashes, asked_for), len(self._hashes) - 1)
        rows = np.where(self._hashes[positions] == asked_for, self._order[positions], -1)
        return np.array([row if row >= 0 and self.word(row) == word else -1
                         for row, word in zip(rows, words)], np.int64)

    def word(self, row: int) -> str:
        """The word of a row."""
        return self._records.values("word", slice(row, row + 1))[0].tobytes().decode("utf-8")

    def nearest(self, rows: np.ndarray, count: int) -> Iterator[List[np.ndarray]]:
        """The rows of the `count` other words nearest to each of `rows` by cosine, nearest first.

        The neighbours of a word do not depend on the other words of `rows`. They are yielded
        for some hundred rows at a time.
        """
        for start in range(0, len(rows), _QUERIES_AT_A_TIME):
            yield self._nearest(rows[start:start + _QUERIES_AT_A_TIME], count)

    def _nearest(self, rows: np.ndarray, count: int) -> List[np.ndarray]:
        """The rows of the `count` nearest words to each of `rows`."""
        # The last digits of a matrix product depend on its shape: twice as many words as
        # asked for are ranked again, each cosine computed on its own in float64.
        close = self._close(rows, min(2 * count, len(self._records)))
        cosines = (self._vectors[rows, np.newaxis].astype(np.float64)
                   * self._vectors[close].astype(np.float64)).sum(axis=-1)
        cosines[self._is_repeated[close] | (close == rows[:, np.newaxis])] = -np.inf
        order = np.lexsort((close, -cosines), axis=-1)[:, :count]
        return [neighbours[positions][cosine[positions] > -np.inf]
                for neighbours, cosine, positions in zip(close, cosines, order)]

    def _close(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The rows of the `count` largest cosines to each of `rows`, unordered, [n, count]."""
        queries = self._vectors[rows]
        best = np.full([len(rows), count], -np.inf, np.float32)
        close = np.repeat(rows[:, np.newaxis], count, axis=1)  # not found yet: the word itself
        for start in range(0, len(self._vectors), _ROWS_AT_A_TIME):
            end = min(start + _ROWS_AT_A_TIME, len(self._vectors))
            cosines = queries @ self._vectors[start:end].T  # [n, end - start]
            cosines[:, self._is_repeated[start:end]] = -np.inf
            inside = np.flatnonzero((rows >= start) & (rows < end))
            cosines[inside, rows[inside] - start] = -np.inf  # the word itself
            better = np.flatnonzero((cosines > best.min(axis=1, keepdims=True)).any(axis=1))
            cosines = np.concatenate([best[better], cosines[better]], axis=1)
            ids = np.concatenate([close[better], np.tile(np.arange(start, end), [len(better), 1])],
                                 axis=1)
            positions = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            best[better] = np.take_along_axis(cosines, positions, axis=1)
            close[better] = np.take_along_axis(ids, positions, axis=1)
        return close


def open_vectors(path: str, store_dir: str) -> WordVectors:
    """The vectors of a file, read on first use and kept in `store_dir`.

    Only lower-cased words made of letters are kept: no other word is looked up, and none
    should replace a word of a text.

    Raises:
        UserError: with the number of the line, if it is not a word and its vector.
    """
    files.require_file(path, "--glove_embs")
    content = files.content_hash(path, os.path.join(store_dir, "hashes.json"))
    vectors = store.open_or_build(
        store_dir, "word_vectors", {"content": content}, _COLUMNS, lambda: _chunks(path))
    if not len(vectors):
        raise UserError(f"--glove_embs={path} holds no lower-cased word with a vector")
    return WordVectors(vectors)


def _chunks(path: str) -> Iterator[store.Chunk]:
    reader = _Reader(path)
    with Counter(f"Reading {path}", unit="words") as counter:
        for lines in in_chunks(text_files.lines(path), _LINES_AT_A_TIME):
            yield reader.chunk(lines)
            counter.advance(len(lines))


class _Reader:
    """Turns lines into words and vectors; the first line tells the vectors' dimension."""

    def __init__(self, path: str):
        self._path = path
        self._dimension = 0

    def chunk(self, block: List[Tuple[int, str]]) -> store.Chunk:
        kept = []
        for line_number, line in block:
            line = line.rstrip()
            if line_number == 1 and self._is_header(line):
                continue
            word, numbers = self._split(line_number, line)
            if word.isalpha() and word == word.lower():
                kept.append((line_number, word, numbers))
        return self._columns(kept)

    def _is_header(self, line: str) -> bool:
        """Whether it is word2vec's header; stores the dimension, which the first line tells."""
        fields = line.split(" ")
        is_header = len(fields) == 2 and all(_COUNT.fullmatch(field) for field in fields)
        self._dimension = int(fields[1]) if is_header else len(fields) - 1
        if not self._dimension:
            raise UserError(f"--glove_embs={self._path}, line 1: a word must be followed by the "
                            "numbers of its vector, all separated by single spaces")
        return is_header

    def _split(self, line_number: int, line: str) -> Tuple[str, str]:
        """A line's word and its numbers, as text."""
        surplus = line.count(" ") - self._dimension
        if surplus < 0:
            self._fail(line_number, f"{line.count(' ')} numbers, and the file's first line has "
                                    f"{self._dimension}; it is cut short")
        word, _, numbers = line.partition(" ")
        if surplus:  # the word has spaces in it, and so is not kept, or there are too many numbers
            word = line.rsplit(" ", self._dimension)[0]
            if _is_number(word.rsplit(" ", 1)[1]):
                self._fail(line_number, f"more numbers than the {self._dimension} of the file's "
                                        "first line")
        return word, numbers

    def _columns(self, kept: List[Tuple[int, str, str]]) -> store.Chunk:
        words = [word.encode("utf-8") for _, word, _ in kept]
        vectors = _numbers(" ".join(numbers for _, _, numbers in kept))
        if len(vectors) != len(kept) * self._dimension or not np.isfinite(vectors).all():
            self._find_broken(kept)
        vectors = vectors.reshape(len(kept), self._dimension)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(norms, np.finfo(np.float32).tiny)
        return {
            "word": (np.frombuffer(b"".join(words), np.uint8),
                     np.array([len(word) for word in words], np.int64)),
            "hash": _hashes_of([word for _, word, _ in kept]),
            "vector": (vectors.ravel(), np.full(len(kept), self._dimension, np.int64))}

    def _find_broken(self, kept: List[Tuple[int, str, str]]) -> None:
        for line_number, _, numbers in kept:
            for number in numbers.split(" "):
                if not _is_number(number):
                    self._fail(line_number, f"{number[:40]!r} is not a finite number")

    def _fail(self, line_number: int, wrong: str) -> None:
        raise UserError(f"--glove_embs={self._path}, line {line_number}: {wrong}")


def _numbers(text: str) -> np.ndarray:
    """The numbers in a text, float32, up to the first that is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # warns that it stopped early
        return np.fromstring(text, np.float32, sep=" ")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(np.float32(text)))
    except ValueError:
        return False


def _hashes_of(words: Sequence[str]) -> np.ndarray:
    """64 bits of each word, uint64 [n]."""
    digests = [hashlib.blake2b(word.encode("utf-8"), digest_size=8).digest() for word in words]
    return np.frombuffer(b"".join(digests), "<u8")

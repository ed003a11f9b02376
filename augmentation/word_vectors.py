"""Words of similar meaning: the nearest neighbours of a word among the vectors of a text file.

The file (GloVe's format, or word2vec's with its header line) is read once, line by line, into a
store of normalised vectors that is memory-mapped afterwards: of two million words, only the words
themselves are in memory. Knows nothing of texts.
"""

import os
import re
from typing import Iterator, List, Sequence

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

_COLUMNS = {"word": store.Column("uint8", ragged=True),  # UTF-8
            "vector": store.Column("float32", ragged=True)}


class WordVectors:
    """Word vectors and their nearest neighbours. Made by `open_vectors`."""

    def __init__(self, records: store.Records):
        vectors, _ = records.values("vector")
        self._vectors = vectors.reshape(len(records), -1)  # [words, dimension], normalised
        text, ends = records.flat("word").tobytes(), records.offsets("word")
        self._words = [text[start:end].decode("utf-8") for start, end in zip(ends, ends[1:])]
        self._rows = {word: row for row, word in enumerate(self._words)}

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def nearest(self, words: Sequence[str], count: int) -> List[List[str]]:
        """The `count` other words nearest to each word by cosine, nearest first.

        The neighbours of a word do not depend on the other ones that are asked for.

        Args:
            words: words that have a vector.
        """
        rows = np.array([self._rows[word] for word in words], np.int64)
        return [[self._words[row] for row in neighbours]
                for start in range(0, len(rows), _QUERIES_AT_A_TIME)
                for neighbours in self._nearest(rows[start:start + _QUERIES_AT_A_TIME], count)]

    def _nearest(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The rows of the `count` words nearest to each of `rows`, [n, count or fewer]."""
        # The last digits of a matrix product depend on its shape: twice as many words as
        # asked for are ranked again, each cosine computed on its own in float64.
        close = self._close(rows, 2 * count + 1)
        cosines = (self._vectors[rows, np.newaxis].astype(np.float64)
                   * self._vectors[close].astype(np.float64)).sum(axis=-1)
        cosines[close == rows[:, np.newaxis]] = np.inf  # the word itself comes first
        order = np.lexsort((close, -cosines), axis=-1)
        return np.take_along_axis(close, order, axis=1)[:, 1:count + 1]

    def _close(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The rows of the `count` largest cosines to each of `rows`, unordered."""
        queries = self._vectors[rows]
        best = np.zeros([len(rows), 0], np.float32)
        close = np.zeros([len(rows), 0], np.int64)
        for start in range(0, len(self._vectors), _ROWS_AT_A_TIME):
            block = self._vectors[start:start + _ROWS_AT_A_TIME]
            numbers = np.tile(np.arange(start, start + len(block)), [len(rows), 1])
            best = np.concatenate([best, queries @ block.T], axis=1)
            close = np.concatenate([close, numbers], axis=1)
            if best.shape[1] > count:
                largest = np.argpartition(-best, count - 1, axis=1)[:, :count]
                best = np.take_along_axis(best, largest, axis=1)
                close = np.take_along_axis(close, largest, axis=1)
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
    dimension, seen = 0, set()
    with Counter(f"Reading {path}", unit="words") as counter:
        for lines in in_chunks(text_files.lines(path), _LINES_AT_A_TIME):
            words, vectors = [], []
            for line_number, line in lines:
                word, *numbers = line.rstrip().split(" ")
                if line_number == 1:
                    if re.fullmatch(r"\d{1,18} \d{1,18}", line.rstrip()):  # word2vec's header
                        dimension = int(numbers[0])
                        continue
                    dimension = len(numbers)
                if not word.isalpha() or word != word.lower() or word in seen:
                    continue
                if len(numbers) > dimension:  # the word has spaces in it, as some of GloVe's
                    continue
                vectors.append(_vector(numbers, dimension, f"{path}, line {line_number}"))
                words.append(word)
                seen.add(word)
            yield _columns(words, vectors, dimension)
            counter.advance(len(lines))


def _vector(numbers: List[str], dimension: int, where: str) -> np.ndarray:
    """The numbers, normalised."""
    try:
        vector = np.array(numbers, np.float64)
    except ValueError:
        vector = np.zeros(0)
    if not dimension or len(vector) != dimension or not np.isfinite(vector).all():
        raise UserError(f"--glove_embs={where}: must be a word and {dimension or 'its'} numbers, "
                        "as in the first line, separated by single spaces")
    return vector / max(np.linalg.norm(vector), np.finfo(np.float32).tiny)


def _columns(words: List[str], vectors: List[np.ndarray], dimension: int) -> store.Chunk:
    encoded = [word.encode("utf-8") for word in words]
    return {"word": (np.frombuffer(b"".join(encoded), np.uint8),
                     np.array([len(word) for word in encoded], np.int64)),
            "vector": (np.array(vectors, np.float32).ravel(),
                       np.full(len(words), dimension, np.int64))}

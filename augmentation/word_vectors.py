"""Words of similar meaning: the nearest neighbours of a word among the vectors of a text file.

The file is in GloVe's format, or word2vec's with its header line. Knows nothing of texts.
"""

import itertools
import re
from typing import Dict, List, Sequence

import numpy as np

from engine.data import text_files
from engine.errors import UserError
from engine.progress import Counter

# As in TinyBERT's code: the files begin with the most frequent words.
_MAX_LINES = 100_000


class WordVectors:
    """Word vectors and their nearest neighbours. Made by `load`.

    Args:
        vectors: of the words, float32 [words, dimension], normalised.
    """

    def __init__(self, words: Sequence[str], vectors: np.ndarray):
        self._words, self._vectors = words, vectors
        self._rows = {word: row for row, word in enumerate(words)}

    def nearest(self, word: str, count: int) -> List[str]:
        """The `count` other words nearest to a word by cosine; none if it has no vector."""
        if word not in self._rows:
            return []
        cosines = self._vectors @ self._vectors[self._rows[word]]
        cosines[self._rows[word]] = np.inf  # the word itself comes first
        return [self._words[row] for row in np.argsort(-cosines, kind="stable")[1:count + 1]]


def load(path: str) -> WordVectors:
    """Reads the vectors of a file's first lines.

    Only lower-cased words made of letters are kept: no other word is looked up, and none
    should replace a word of a text.
    """
    vectors: Dict[str, np.ndarray] = {}
    dimension = 0
    with Counter(f"Reading {path}", unit="words") as counter:
        for line_number, line in itertools.islice(text_files.lines(path), _MAX_LINES):
            counter.advance(1)
            word, *numbers = line.rstrip().split(" ")
            if line_number == 1:
                if re.fullmatch(r"\d{1,18} \d{1,18}", line.rstrip()):  # word2vec's header
                    dimension = int(numbers[0])
                    continue
                dimension = len(numbers)
            has_spaces = len(numbers) > dimension  # as some of GloVe's
            if word.isalpha() and word == word.lower() and word not in vectors and not has_spaces:
                vectors[word] = _vector(numbers, dimension, f"{path}, line {line_number}")
    if not vectors:
        raise UserError(f"--glove_embs={path} holds no lower-cased word with a vector")
    return WordVectors(list(vectors), np.stack(list(vectors.values())))


def _vector(numbers: List[str], dimension: int, where: str) -> np.ndarray:
    """The numbers, normalised."""
    try:
        vector = np.array(numbers, np.float64)
    except ValueError:
        vector = np.zeros(0)
    if not dimension or len(vector) != dimension or not np.isfinite(vector).all():
        raise UserError(f"--glove_embs={where}: must be a word and {dimension or 'its'} numbers, "
                        "as in the first line, separated by single spaces")
    return (vector / max(np.linalg.norm(vector), np.finfo(np.float32).tiny)).astype(np.float32)

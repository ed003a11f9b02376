"""What each word of a text could be replaced by: masked-LM words, or neighbours by vector.

As in TinyBERT's augmentation: a word of one WordPiece has the words that the masked-LM
proposes in its place; a word of several, which the model cannot propose, its nearest
neighbours among the word vectors.
"""

import functools
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from augmentation.masked_lm import MaskedLanguageModel, Places
from augmentation.variants import Word, words_of
from augmentation.word_vectors import WordVectors
from engine.data import store
from engine.progress import Counter
from tokenization import BatchTokenizer

_REMEMBERED_WORDS = 1 << 16


class Text(NamedTuple):
    """A text as the masked-LM sees it, and its words that may be replaced."""
    words: List[Word]
    pieces: np.ndarray  # the ids of the whole text
    positions: List[Optional[int]]  # of each word among them; None: it is not one WordPiece


class Parser:
    """Finds the words of texts."""

    def __init__(self, tokenizer: BatchTokenizer):
        self._tokenizer = tokenizer
        self._unknown_id = tokenizer.vocab["[UNK]"]

    def parse(self, text: str) -> Text:
        words = words_of(text)
        pieces, lengths = self._tokenizer.encode_batch([word.text for word in words])
        starts = np.cumsum(lengths) - lengths
        replaceable = [(word, int(start) if self._is_whole(pieces, start, length) else None)
                       for word, start, length in zip(words, starts, lengths)
                       if word.may_be_replaced]
        return Text([word for word, _ in replaceable], pieces,
                    [position for _, position in replaceable])

    def _is_whole(self, pieces: np.ndarray, start: int, length: int) -> bool:
        return length == 1 and pieces[start] != self._unknown_id


class Neighbours:
    """The neighbours of all words that some texts ask for. Made by `open_neighbours`."""

    def __init__(self, vectors: WordVectors, records: store.Records):
        self._vectors = vectors
        self._records = records
        self._rows = records.scalars("row")
        self.of = functools.lru_cache(_REMEMBERED_WORDS)(self.of)

    def of(self, word: str) -> Sequence[str]:
        """Of a lower-cased word, the nearest first; none where the vectors lack it."""
        row, = self._vectors.rows_of([word])
        place = int(np.searchsorted(self._rows, row))
        if row < 0 or place == len(self._rows) or self._rows[place] != row:
            return ()
        neighbours, _ = self._records.values("neighbours", slice(place, place + 1))
        return tuple(self._vectors.word(neighbour) for neighbour in neighbours)


def open_neighbours(vectors: WordVectors, texts: Callable[[], Iterable[Text]], count: int,
                    store_dir: str, key: object) -> Neighbours:
    """Finds the neighbours that the texts ask for, all in one go; opens them the second time.

    Args:
        texts: called only where they must be found.
        count: of neighbours for each word.
        key: everything that shapes vectors and texts, as JSON values.
    """
    def chunks() -> Iterator[store.Chunk]:
        rows = _rows_asked_for(vectors, texts())
        with Counter("Finding neighbours", unit="words", total=len(rows)) as counter:
            for nearest in vectors.nearest(rows, count):
                some, rows = rows[:len(nearest)], rows[len(nearest):]
                yield {"row": some,
                       "neighbours": (np.concatenate(nearest),
                                      np.array([len(row) for row in nearest], np.int64))}
                counter.advance(len(nearest))

    columns = {"row": store.Column("int32", ragged=False),
               "neighbours": store.Column("int32", ragged=True)}
    return Neighbours(vectors, store.open_or_build(
        store_dir, "neighbours", {"of": key, "count": count}, columns, chunks))


def _rows_asked_for(vectors: WordVectors, texts: Iterable[Text]) -> np.ndarray:
    """The rows of all words of several WordPieces, rising. Memory: the rows, not the texts."""
    asked_for = np.zeros(len(vectors), bool)
    for text in texts:
        words = [word.text.lower() for word, position in zip(text.words, text.positions)
                 if position is None]
        if words:
            rows = vectors.rows_of(words)
            asked_for[rows[rows >= 0]] = True
    return np.flatnonzero(asked_for)


class Candidates:
    """Finds what the words of texts could be replaced by.

    Args:
        neighbours: None: words of several WordPieces have none and are kept.
    """

    def __init__(self, tokenizer: BatchTokenizer, model: MaskedLanguageModel,
                 neighbours: Optional[Neighbours]):
        self._tokens = tokenizer.inv_vocab
        self._model = model
        self._neighbours = neighbours

    def of_texts(self, texts: Sequence[Text]) -> List[List[Sequence[str]]]:
        """For each text, for each of its words, the candidates."""
        proposed = iter(self._model.candidates(_places(texts)))
        return [[self._of_word(word, next(proposed) if position is not None else None)
                 for word, position in zip(text.words, text.positions)]
                for text in texts]

    def _of_word(self, word: Word, proposed: Optional[np.ndarray]) -> Sequence[str]:
        if proposed is None:
            return self._neighbours.of(word.text.lower()) if self._neighbours else ()
        candidates = [self._tokens[index] for index in proposed]
        if len(word.text) == 1 and not word.text.isascii():
            # Texts of ideographs have no spaces: a word of letters would grow together with
            # those beside it.
            return [candidate for candidate in candidates
                    if len(candidate) == 1 and not candidate.isascii()]
        return candidates


def _places(texts: Sequence[Text]) -> Places:
    """All words of one WordPiece, text after text."""
    lengths = np.array([len(text.pieces) for text in texts], np.int64)
    positions = [[position for position in text.positions if position is not None]
                 for text in texts]
    counts = [len(row) for row in positions]
    return Places(
        pieces=np.concatenate([text.pieces for text in texts]),
        starts=np.repeat(np.cumsum(lengths) - lengths, counts),
        lengths=np.repeat(lengths, counts),
        positions=np.array([position for row in positions for position in row], np.int64))

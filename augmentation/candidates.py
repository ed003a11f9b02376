"""What each word of a text could be replaced by: masked-LM words, or neighbours by vector.

As in TinyBERT's augmentation: the candidates for a word of one WordPiece are the words that
the masked LM predicts there. The model predicts no word of several WordPieces: the candidates
for those are their nearest neighbours among the word vectors.
"""

import functools
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from augmentation.masked_lm import MaskedLanguageModel, WordPositions
from augmentation.variants import Word, words_of
from augmentation.word_vectors import WordVectors
from engine.data import store
from engine.progress import Counter
from tokenization import BatchTokenizer

_REMEMBERED_WORDS = 1 << 16


class Text(NamedTuple):
    """A text as the masked LM sees it, and its words that may be replaced."""
    words: List[Word]
    token_ids: np.ndarray  # of the whole text
    # The position of each word in token_ids; None for a word of several WordPieces.
    positions: List[Optional[int]]


class Parser:
    """Finds the words of texts."""

    def __init__(self, tokenizer: BatchTokenizer):
        self._tokenizer = tokenizer
        self._unknown_id = tokenizer.vocab["[UNK]"]

    def parse(self, text: str) -> Text:
        """Tokenizes a text and finds its words that may be replaced."""
        words = words_of(text)
        token_ids, lengths = self._tokenizer.encode_batch([word.text for word in words])
        starts = np.cumsum(lengths) - lengths
        replaceable = [(word, int(start) if self._is_whole(token_ids, start, length) else None)
                       for word, start, length in zip(words, starts, lengths)
                       if word.may_be_replaced]
        return Text([word for word, _ in replaceable], token_ids,
                    [position for _, position in replaceable])

    def _is_whole(self, token_ids: np.ndarray, start: int, length: int) -> bool:
        return length == 1 and token_ids[start] != self._unknown_id


class Neighbours:
    """The neighbours of the words of some texts. Made by `open_neighbours`."""

    def __init__(self, vectors: WordVectors, records: store.Records):
        self._vectors = vectors
        self._records = records
        self._rows = records.scalars("row")
        self.find = functools.lru_cache(_REMEMBERED_WORDS)(self.find)

    def find(self, word: str) -> Sequence[str]:
        """The neighbours of a lower-cased word, nearest first; none if it has no vector."""
        row, = self._vectors.rows_of([word])
        index = int(np.searchsorted(self._rows, row))
        if row < 0 or index == len(self._rows) or self._rows[index] != row:
            return ()
        neighbours, _ = self._records.values("neighbours", slice(index, index + 1))
        return tuple(self._vectors.word(neighbour) for neighbour in neighbours)


def open_neighbours(vectors: WordVectors, texts: Callable[[], Iterable[Text]], count: int,
                    store_dir: str, key: object) -> Neighbours:
    """Finds the neighbours of the texts' words, all in one pass; a second run opens them.

    Args:
        texts: gives the texts; not called by a second run.
        count: number of neighbours for each word.
        key: everything that determines vectors and texts, as JSON values.
    """
    def chunks() -> Iterator[store.Chunk]:
        rows = _rows_to_look_up(vectors, texts())
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


def _rows_to_look_up(vectors: WordVectors, texts: Iterable[Text]) -> np.ndarray:
    """The rows of all words of several WordPieces, ascending. Memory: the rows, not the texts."""
    found = np.zeros(len(vectors), bool)
    for text in texts:
        words = [word.text.lower() for word, position in zip(text.words, text.positions)
                 if position is None]
        if words:
            rows = vectors.rows_of(words)
            found[rows[rows >= 0]] = True
    return np.flatnonzero(found)


class Candidates:
    """Finds what the words of texts could be replaced by.

    Args:
        neighbours: None if there are no word vectors: words of several WordPieces are kept.
    """

    def __init__(self, tokenizer: BatchTokenizer, model: MaskedLanguageModel,
                 neighbours: Optional[Neighbours]):
        self._tokens = tokenizer.inv_vocab
        self._model = model
        self._neighbours = neighbours

    def of_texts(self, texts: Sequence[Text]) -> List[List[Sequence[str]]]:
        """The candidates for each word of each text."""
        predicted = iter(self._model.candidates(_word_positions(texts)))
        return [[self._of_word(word, next(predicted) if position is not None else None)
                 for word, position in zip(text.words, text.positions)]
                for text in texts]

    def _of_word(self, word: Word, predicted: Optional[np.ndarray]) -> Sequence[str]:
        if predicted is None:
            return self._neighbours.find(word.text.lower()) if self._neighbours else ()
        candidates = [self._tokens[index] for index in predicted]
        if len(word.text) == 1 and not word.text.isascii():
            # Texts of ideographs have no spaces: a word of letters would run into the
            # characters beside it.
            return [candidate for candidate in candidates
                    if len(candidate) == 1 and not candidate.isascii()]
        return candidates


def _word_positions(texts: Sequence[Text]) -> WordPositions:
    """All words of one WordPiece, text after text."""
    lengths = np.array([len(text.token_ids) for text in texts], np.int64)
    positions = [[position for position in text.positions if position is not None]
                 for text in texts]
    counts = [len(row) for row in positions]
    return WordPositions(
        token_ids=np.concatenate([text.token_ids for text in texts]),
        starts=np.repeat(np.cumsum(lengths) - lengths, counts),
        lengths=np.repeat(lengths, counts),
        positions=np.array([position for row in positions for position in row], np.int64))

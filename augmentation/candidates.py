"""What each word of a text could be replaced by: masked-LM words, or neighbours by vector.

As in TinyBERT's augmentation: the candidates for a word of one WordPiece are the words that
the masked LM predicts there. The model predicts no word of several WordPieces: the candidates
for those are their nearest neighbours among the word vectors.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from augmentation.masked_lm import MaskedLanguageModel, WordPositions
from augmentation.variants import Word, words_of
from augmentation.word_vectors import WordVectors
from tokenization import BatchTokenizer


class Text(NamedTuple):
    """A text as the masked LM sees it, and its words that may be replaced."""
    words: List[Word]
    token_ids: np.ndarray  # of the whole text
    # The position of each word in token_ids; None for a word of several WordPieces.
    positions: List[Optional[int]]


def parse(text: str, tokenizer: BatchTokenizer) -> Text:
    """Tokenizes a text and finds its words that may be replaced."""
    words = words_of(text)
    token_ids, lengths = tokenizer.encode_batch([word.text for word in words])
    starts, unknown_id = np.cumsum(lengths) - lengths, tokenizer.vocab["[UNK]"]
    replaceable = [
        (word, int(start) if length == 1 and token_ids[start] != unknown_id else None)
        for word, start, length in zip(words, starts, lengths) if word.may_be_replaced]
    return Text([word for word, _ in replaceable], token_ids,
                [position for _, position in replaceable])


class Candidates:
    """Finds what the words of texts could be replaced by.

    Args:
        vectors: None if there are none: words of several WordPieces are kept.
    """

    def __init__(self, tokenizer: BatchTokenizer, model: MaskedLanguageModel,
                 vectors: Optional[WordVectors]):
        self._tokens = tokenizer.inv_vocab
        self._model = model
        self._vectors = vectors
        self._neighbours: Dict[str, Sequence[str]] = {}  # of all words seen so far

    def of_texts(self, texts: Sequence[Text], advance: Callable[[int], None] = lambda count: None
                 ) -> List[List[Sequence[str]]]:
        """The candidates for each word of each text; see `MaskedLanguageModel.candidates`."""
        predicted = iter(self._model.candidates(_word_positions(texts), advance))
        return [[self._of_word(word, next(predicted) if position is not None else None)
                 for word, position in zip(text.words, text.positions)]
                for text in texts]

    def _of_word(self, word: Word, predicted: Optional[np.ndarray]) -> Sequence[str]:
        if predicted is None:
            return self._neighbours_of(word.text.lower())
        candidates = [self._tokens[index] for index in predicted]
        if len(word.text) == 1 and not word.text.isascii():
            # Texts of ideographs have no spaces: a word of letters would run into the
            # characters beside it.
            return [candidate for candidate in candidates
                    if len(candidate) == 1 and not candidate.isascii()]
        return candidates

    def _neighbours_of(self, word: str) -> Sequence[str]:
        if word not in self._neighbours:
            self._neighbours[word] = (
                self._vectors.nearest(word, self._model.num_candidates) if self._vectors else ())
        return self._neighbours[word]


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

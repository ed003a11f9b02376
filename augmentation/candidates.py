"""What each word of a text could be replaced by: masked-LM words, or neighbours by vector.

As in TinyBERT's augmentation: the candidates for a word of one WordPiece are the words that
the masked LM predicts there. The model predicts no word of several WordPieces: the candidates
for those are their nearest neighbours among the word vectors.
"""

import functools
from typing import Callable, List, NamedTuple, Optional, Sequence

import numpy as np

from augmentation.masked_lm import MaskedLanguageModel, WordPositions
from augmentation.variants import Word, words_of
from augmentation.word_vectors import WordVectors
from tokenization import BatchTokenizer


class Text(NamedTuple):
    """A text as the masked LM sees it, and its words that may be replaced."""
    words: List[Word]
    token_ids: np.ndarray  # of the whole text
    positions: np.ndarray  # of each word in token_ids; -1 for a word of several WordPieces


def parse(text: str, tokenizer: BatchTokenizer) -> Text:
    """Tokenizes a text and finds its words that may be replaced."""
    words = words_of(text)
    token_ids, lengths = tokenizer.encode_batch([word.text for word in words])
    starts, unknown_id = np.cumsum(lengths) - lengths, tokenizer.vocab["[UNK]"]
    positions = [start if length == 1 and token_ids[start] != unknown_id else -1
                 for start, length in zip(starts, lengths)]
    replaceable = [index for index, word in enumerate(words) if word.may_be_replaced]
    return Text([words[index] for index in replaceable], token_ids,
                np.array([positions[index] for index in replaceable], np.int64))


class Candidates:
    """Finds what the words of texts could be replaced by.

    Args:
        vectors: None if there are none: words of several WordPieces are kept.
    """

    def __init__(self, model: MaskedLanguageModel, vectors: Optional[WordVectors]):
        self._model = model
        self._neighbours: Callable[[str], Sequence[str]] = lambda word: ()
        if vectors:
            self._neighbours = functools.lru_cache(maxsize=None)(
                functools.partial(vectors.nearest, count=model.num_candidates))

    def of_texts(self, texts: Sequence[Text], advance: Callable[[int], None] = lambda count: None
                 ) -> List[List[Sequence[str]]]:
        """The candidates for each word of each text; see `MaskedLanguageModel.candidates`."""
        predicted = iter(self._model.candidates(_word_positions(texts), advance))
        return [[self._neighbours(word.text.lower()) if position < 0
                 else self._of_prediction(word, next(predicted))
                 for word, position in zip(text.words, text.positions)] for text in texts]

    def _of_prediction(self, word: Word, ids: np.ndarray) -> Sequence[str]:
        candidates = self._model.encoding.tokenizer.convert_ids_to_tokens(ids.tolist())
        if len(word.text) == 1 and not word.text.isascii():
            # Texts of ideographs have no spaces: a word of letters would run into the
            # characters beside it.
            return [candidate for candidate in candidates
                    if len(candidate) == 1 and not candidate.isascii()]
        return candidates


def _word_positions(texts: Sequence[Text]) -> WordPositions:
    """All words of one WordPiece, text after text."""
    lengths = np.array([len(text.token_ids) for text in texts], np.int64)
    positions = [text.positions[text.positions >= 0] for text in texts]
    counts = [len(row) for row in positions]
    return WordPositions(
        token_ids=np.concatenate([text.token_ids for text in texts]),
        starts=np.repeat(np.cumsum(lengths) - lengths, counts),
        lengths=np.repeat(lengths, counts), positions=np.concatenate(positions))

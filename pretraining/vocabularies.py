"""New vocabularies: trained on a corpus, or extended by the words of a domain."""

import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Tuple

import numpy as np

from engine.errors import UserError
from tokenization import FullTokenizer

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNUSED = re.compile(r"\[unused\d+\]")
# The share of the vocabulary for single characters. In scripts with more, the rarest are [UNK].
_ALPHABET_SHARE = 0.5


class NewWord(NamedTuple):
    """A word that is given a row of the vocabulary."""
    word: str
    row: int
    pieces: List[int]  # ids of the WordPieces that it was split into


def train(texts: Iterable[str], *, vocab_size: int, num_unused: int, do_lower_case: bool,
          min_frequency: int) -> List[str]:
    """A WordPiece vocabulary in BERT's order: [PAD], unused rows, special tokens, WordPieces.

    The package breaks ties between equally frequent WordPieces at random, so the rarest ones
    may differ from run to run.

    Raises:
        UserError: the package tokenizers is not installed, or there is no text.
    """
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError as error:
        raise UserError("pretraining.create_vocab needs the package tokenizers: pip install -r "
                        "pretraining/requirements.txt") from error
    head = ["[PAD]", *(f"[unused{number}]" for number in range(num_unused)), *_SPECIAL]
    if vocab_size <= len(head):
        raise UserError(f"--vocab_size={vocab_size}: must be above {len(head)}, the special and "
                        "unused rows")
    # Splits text as BERT does: each ideograph is a word; lower-casing also strips accents.
    tokenizer = BertWordPieceTokenizer(lowercase=do_lower_case, strip_accents=do_lower_case,
                                       clean_text=True, handle_chinese_chars=True)
    tokenizer.train_from_iterator(
        texts, vocab_size=vocab_size - len(head), min_frequency=min_frequency, special_tokens=[],
        limit_alphabet=max(1, int(vocab_size * _ALPHABET_SHARE)), show_progress=False)
    pieces = set(tokenizer.get_vocab()) - set(head)
    if not pieces:
        raise UserError("--input_file: there is no text in it")
    # Sorted, because the package numbers them differently each time.
    return head + sorted(pieces)


def extend(tokens: List[str], words: Iterable[str],
           tokenizer: FullTokenizer) -> Tuple[List[str], List[NewWord]]:
    """The vocabulary with words in its unused rows, and these words.

    Args:
        tokens: the vocabulary, by row.
        words: single words; those that have a row already are skipped.
        tokenizer: the vocabulary's.

    Raises:
        UserError: there are more words than unused rows, or no new one.
    """
    new_words = [word for word in dict.fromkeys(words) if word not in tokenizer.vocab]
    rows = [row for row, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
    if not 0 < len(new_words) <= len(rows):
        raise UserError(f"--words_file has {len(new_words):,} new words, and --vocab_file "
                        f"{len(rows):,} unused rows: give at least one word, and no more words "
                        "than rows")
    extended, added = list(tokens), []
    for row, word in zip(rows, new_words):
        pieces = tokenizer.convert_tokens_to_ids(tokenizer.wordpiece_tokenizer.tokenize(word))
        added.append(NewWord(word, row, pieces))
        extended[row] = word
    return extended, added


def extend_embeddings(variables: Mapping[str, np.ndarray],
                      added: Iterable[NewWord]) -> Dict[str, np.ndarray]:
    """A checkpoint's variables, with each new word's row the mean of its WordPieces' rows."""
    table = variables[WORD_EMBEDDINGS].copy()
    for word in added:
        table[word.row] = variables[WORD_EMBEDDINGS][word.pieces].mean(axis=0)
    return {**variables, WORD_EMBEDDINGS: table}

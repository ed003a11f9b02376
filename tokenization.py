"""Converts text to WordPiece ids: the readable reference, and an equal fast path.

`FullTokenizer` cleans a text, splits it into words and punctuation, and cuts
each of these into the longest WordPieces of the vocabulary. `BatchTokenizer`
gives the same ids for many texts at once. Knows nothing of examples, of special
tokens in a sequence, or of truncation.

Public names, signatures and results are those of Google's `tokenization.py`.
Whether a character is a letter, an accent or unassigned is decided by the
running Python's `unicodedata`, as in Google's code.
"""

import collections
import itertools
import os
import re
import unicodedata
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

Text = Union[str, bytes]
Path = Union[str, bytes, os.PathLike]

# A published checkpoint: the case of its texts, and its size.
_PUBLISHED = re.compile(
    r"(?:^|/)((multi_)?(cased|uncased|multilingual|chinese)_L-\d+_H-\d+_A-\d+)/bert_model\.ckpt")

# The blocks of CJK ideographs, first and last code point. Kana and Hangul are
# not among them: those scripts form words.
IDEOGRAPHS = (
    (0x3400, 0x4DBF),  # Extension A
    (0x4E00, 0x9FFF),  # Unified Ideographs
    (0xF900, 0xFAFF),  # Compatibility Ideographs
    (0x20000, 0x2A6DF),  # Extension B
    (0x2A700, 0x2B73F),  # Extension C
    (0x2B740, 0x2B81F),  # Extension D
    (0x2B820, 0x2CEAF),  # Extension E
    (0x2F800, 0x2FA1F),  # Compatibility Ideographs Supplement
)

# Bounds the cache's memory (about 30 MB when full of rare words). It is far above the
# number of different words in a chunk of text, so that most words are in the cache.
_MAX_REMEMBERED_WORDS = 1 << 17
_MAX_REMEMBERED_LENGTH = 200  # characters


def validate_case_matches_checkpoint(do_lower_case: bool,
                                     init_checkpoint: Optional[str]) -> None:
    """Raises ValueError if `do_lower_case` is wrong for a published checkpoint.

    The checkpoint is recognized by the name of its folder
    (`cased_L-12_H-768_A-12/bert_model.ckpt`). Others are not checked.
    """
    published = _PUBLISHED.search(init_checkpoint or "")
    if published and bool(do_lower_case) == (published.group(3) == "cased"):
        raise ValueError(
            f"--do_lower_case={do_lower_case} with --init_checkpoint={init_checkpoint}: "
            f"{published.group(1)} was pretrained on {'cased' if do_lower_case else 'lower-cased'} "
            f"text; give --do_lower_case={not do_lower_case}.")


def convert_to_unicode(text: Text) -> str:
    """`text` as a str. Bytes are decoded as UTF-8, without those that are not valid."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Unsupported string type: {type(text)}")


def printable_text(text: Text) -> str:
    """`text` as `print` and logging expect it; see `convert_to_unicode`."""
    return convert_to_unicode(text)


def load_vocab(vocab_file: Path) -> "collections.OrderedDict[str, int]":
    """Token -> id, the number of its line from 0, or of its last line if it has several.

    A byte order mark at the beginning of the file is no part of the first token.

    Raises ValueError if the file cannot be read, is empty or is not UTF-8.
    """
    path = os.fsdecode(vocab_file)
    try:
        with open(path, "rb") as stream:
            lines = stream.read().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise ValueError(_vocab_message(path, f"cannot be read ({error.strerror})")) from error
    except UnicodeDecodeError as error:
        raise ValueError(_vocab_message(path, f"is not UTF-8 text ({error})")) from error
    if not lines[-1]:
        lines.pop()  # The line break at the end of a file begins no new line.
    if not lines:
        raise ValueError(_vocab_message(path, "is empty"))
    return collections.OrderedDict((line.strip(), index) for index, line in enumerate(lines))


def _vocab_message(path: str, wrong: str) -> str:
    return f"Vocabulary {path} {wrong}; give the vocab.txt that came with the checkpoint."


def convert_by_vocab(vocab: Mapping[Any, Any], items: Iterable[Any]) -> List[Any]:
    """The value of each of `items` in `vocab`. Raises KeyError for an unknown one."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> List[int]:
    """The id of each token. Raises KeyError for one that is not in `vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> List[str]:
    """The token of each id. Raises KeyError for one that is not in `inv_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> List[str]:
    """The parts of `text` between whitespace, as `str.split` understands it."""
    return text.split()


class FullTokenizer:
    """Text -> WordPiece tokens -> ids, one text at a time: the reference."""

    def __init__(self, vocab_file: Path, do_lower_case: bool = True):
        """Reads `vocab_file` (see `load_vocab`); `do_lower_case` drops accents as well."""
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)

    def tokenize(self, text: Text) -> List[str]:
        """The WordPiece tokens of `text`; no [CLS] or [SEP], no truncation."""
        return [piece for token in self.basic_tokenizer.tokenize(text)
                for piece in self.wordpiece_tokenizer.tokenize(token)]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> List[int]:
        """The id of each token. Raises KeyError for one that is not in the vocabulary."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> List[str]:
        """The token of each id. Raises KeyError for one that is not in the vocabulary."""
        return convert_by_vocab(self.inv_vocab, ids)


class BatchTokenizer(FullTokenizer):
    """The ids of many texts in one call, equal to the reference's for every text.

    The reference tokenizes each word between whitespace (an ideograph is a word)
    on its own, so the ids of a text are those of its words, concatenated. Words
    recur: the reference tokenizes each once, and a cache keeps its ids. A second
    implementation might have another version of the Unicode tables.
    """

    def __init__(self, vocab_file: Path, do_lower_case: bool = True):
        """Raises ValueError if the vocabulary is unusable or lacks a token BERT needs."""
        super().__init__(vocab_file, do_lower_case=do_lower_case)
        missing = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
                   if token not in self.vocab]
        if missing:
            raise ValueError(
                _vocab_message(os.fsdecode(vocab_file), f"lacks {', '.join(missing)}"))
        self.largest_id = max(self.vocab.values())
        self.pad_id = self.vocab["[PAD]"]
        self.cls_id = self.vocab["[CLS]"]
        self.sep_id = self.vocab["[SEP]"]
        self.mask_id = self.vocab.get("[MASK]")  # None: only masked-LM pretraining needs it.
        self._word_ids = _WordIds(
            lambda word: self.convert_tokens_to_ids(self.tokenize(word)))

    def encode_batch(self, texts: Sequence[Text]) -> Tuple[np.ndarray, np.ndarray]:
        """The ids of `texts`, without special tokens and without truncation.

        Returns:
            The ids of all texts, concatenated, int32 [sum of lengths], and the
            number of ids of each text, int64 [len(texts)].
        """
        ids_of = self._word_ids.__getitem__
        ids, lengths = [], []
        for text in texts:
            before = len(ids)
            ids.extend(itertools.chain.from_iterable(map(ids_of, _split_words(text))))
            lengths.append(len(ids) - before)
        return np.fromiter(ids, np.int32, len(ids)), np.array(lengths, np.int64)


class BasicTokenizer:
    """Text -> words and punctuation marks, cleaned, and lower-cased if wanted."""

    def __init__(self, do_lower_case: bool = True):
        """`do_lower_case` drops accents (nonspacing marks) as well."""
        self.do_lower_case = do_lower_case

    def tokenize(self, text: Text) -> List[str]:
        """The words of `text` and, each on its own, its punctuation marks and ideographs."""
        return [token for word in _split_words(text) for token in self._split_punctuation(word)]

    def _split_punctuation(self, word: str) -> List[str]:
        if self.do_lower_case:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = decomposed.translate(_WITHOUT_ACCENTS)
        return word.translate(_SPACED_PUNCTUATION).split()


class WordpieceTokenizer:
    """Word -> WordPieces of the vocabulary; all but the first begin with "##"."""

    def __init__(self, vocab: Mapping[str, int], unk_token: str = "[UNK]",
                 max_input_chars_per_word: int = 200):
        """`unk_token` replaces words that are longer, or that the vocabulary cannot spell."""
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: Text) -> List[str]:
        """The WordPieces of each word of `text`, in which spaces separate the words.

        "unaffable" -> ["un", "##aff", "##able"]: each WordPiece is the longest possible one.
        """
        return [piece for word in whitespace_tokenize(convert_to_unicode(text))
                for piece in self._split_word(word)]

    def _split_word(self, word: str) -> List[str]:
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start = end
        return pieces


class _WordIds(dict):
    """A cache, word -> ids. Encodes a word when it first occurs; is emptied when full."""

    def __init__(self, encode: Callable[[str], Iterable[int]]):
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> Tuple[int, ...]:
        ids = tuple(self._encode(word))
        if len(word) <= _MAX_REMEMBERED_LENGTH:
            if len(self) >= _MAX_REMEMBERED_WORDS:
                self.clear()
            self[word] = ids
        return ids


class _CharacterTable(dict):
    """A table for `str.translate` that finds a character's replacement when it first occurs."""

    def __init__(self, replacement: Callable[[str], str]):
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code_point: int) -> str:
        self[code_point] = replacement = self._replacement(chr(code_point))
        return replacement


def _split_words(text: Text) -> List[str]:
    return convert_to_unicode(text).translate(_CLEAN).split()


def _clean(char: str) -> str:
    if char in "\0\ufffd" or _is_control(char):
        return ""
    if _is_whitespace(char):
        return " "
    return f" {char} " if _is_ideograph(char) else char


def _is_ideograph(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)


def _is_whitespace(char: str) -> bool:
    """Whether `char` counts as a space; tab and line breaks do."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    """Whether `char` is dropped: control and format characters, private use, unassigned."""
    return char not in "\t\n\r" and unicodedata.category(char).startswith("C")


def _is_punctuation(char: str) -> bool:
    """Whether `char` stands alone: Unicode's punctuation and all ASCII symbols ("$", "^")."""
    is_ascii_symbol = "!" <= char <= "~" and not char.isalnum()
    return is_ascii_symbol or unicodedata.category(char).startswith("P")


_CLEAN = _CharacterTable(_clean)
_WITHOUT_ACCENTS = _CharacterTable(
    lambda char: "" if unicodedata.category(char) == "Mn" else char)
_SPACED_PUNCTUATION = _CharacterTable(
    lambda char: f" {char} " if _is_punctuation(char) else char)

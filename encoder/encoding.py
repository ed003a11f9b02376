"""How texts become token ids: the vocabulary, the casing and the layout of a record.

Layout, as in the original: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]. If the tokens do not fit, the
longer text is cut at its end. If b has no tokens, it has no [SEP] either.
"""

from typing import List, NamedTuple, Tuple

import numpy as np

from encoder import vocabulary
from engine import log
from engine.data import store
from engine.errors import UserError
from tokenization import BatchTokenizer

# Some models round their vocab_size up to a multiple of this.
_VOCAB_PADDING = 128


class Encoding(NamedTuple):
    """How texts become ids. Made by `load_encoding`."""
    tokenizer: BatchTokenizer
    vocab_file: str
    vocab_hash: str
    do_lower_case: bool
    max_seq_length: int

    @property
    def id_dtype(self) -> str:
        """NumPy's name of the ids' type in a store: "uint16" if it holds all ids, else "uint32"."""
        return "uint16" if max(self.tokenizer.vocab.values()) < 2**16 else "uint32"


def load_encoding(vocab_file: str, *, do_lower_case: bool, max_seq_length: int,
                  vocab_size: int) -> Encoding:
    """Loads the vocabulary and checks it against the model's `vocab_size`.

    Raises:
        UserError: the file is missing, damaged or belongs to another model.
    """
    tokenizer = vocabulary.load_tokenizer(vocab_file, do_lower_case)
    if max_seq_length < 3:
        raise UserError(f"--max_seq_length={max_seq_length}: must be at least 3, for [CLS], a "
                        "token and [SEP]")
    check_vocab_size(vocab_file, max(tokenizer.vocab.values()) + 1, vocab_size,
                     "--bert_config_file")
    return Encoding(tokenizer, vocab_file, vocabulary.content_hash(vocab_file), do_lower_case,
                    max_seq_length)


def check_vocab_size(vocab_file: str, num_entries: int, vocab_size: int, flag: str) -> None:
    """Raises a UserError if a vocabulary cannot belong to the model; warns about padding.

    Args:
        flag: the flag that gives the model's `vocab_size`.
    """
    if num_entries == vocab_size:
        return
    difference = (f"--vocab_file={vocab_file} has {num_entries:,} entries, and {flag} "
                  f"says vocab_size {vocab_size:,}")
    if num_entries > vocab_size:
        raise UserError(f"{difference}; they must belong to the same model")
    if num_entries <= vocab_size - _VOCAB_PADDING:
        raise UserError(f"{difference}: it is cut short or belongs to another model; if "
                        "neither, fill it up with lines such as [unused1]")
    log.warn(f"{difference}: the rest is taken for padding")


def encode_texts_and_pairs(texts_a: List[str], texts_b: List[str],
                           encoding: Encoding) -> store.Chunk:
    """The columns input_ids, first_segment_length and num_left_out for texts and second texts [n].

    An empty second text means that there is none. What is left out are tokens that do not fit.
    """
    encode = encoding.tokenizer.encode_batch
    ids_a, lengths_a = encode(texts_a)
    ids_b, lengths_b = encode(texts_b)
    kept_a, kept_b = truncated_lengths(
        lengths_a, lengths_b, encoding.max_seq_length - 2 - (lengths_b > 0))
    first_segment_lengths = kept_a + 2
    lengths = first_segment_lengths + kept_b + (kept_b > 0)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    input_ids = np.full(ends[-1], encoding.tokenizer.sep_id, encoding.id_dtype)
    input_ids[starts] = encoding.tokenizer.cls_id
    _copy_rows(input_ids, starts + 1, ids_a, lengths_a, kept_a)
    _copy_rows(input_ids, starts + first_segment_lengths, ids_b, lengths_b, kept_b)
    return {"input_ids": (input_ids, lengths), "first_segment_length": first_segment_lengths,
            "num_left_out": lengths_a - kept_a + lengths_b - kept_b}


def truncated_lengths(lengths_a: np.ndarray, lengths_b: np.ndarray,
                      limit: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """How many tokens of each text are kept, if the longer one loses its last until both fit.

    If both are equally long, the second loses a token first, as in the original: if both must
    be cut, the first keeps half of `limit`, rounded up.

    Args:
        lengths_a, lengths_b: tokens of the two texts, [n].
        limit: tokens that both may have together, [n].
    """
    half = limit // 2
    kept_a = np.minimum(lengths_a, np.maximum(limit - half, limit - lengths_b))
    kept_b = np.minimum(lengths_b, np.maximum(half, limit - lengths_a))
    return kept_a, kept_b


def _copy_rows(target: np.ndarray, target_starts: np.ndarray, rows: np.ndarray,
               row_lengths: np.ndarray, kept: np.ndarray) -> None:
    """Copies the first `kept` values of each row of a flat array to its position in `target`."""
    row_starts = np.cumsum(row_lengths) - row_lengths
    within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    target[np.repeat(target_starts, kept) + within] = rows[np.repeat(row_starts, kept) + within]

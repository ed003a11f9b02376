"""How texts become token ids: the vocabulary, the casing and the layout of a record.

Layout, as in the original: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]. If the tokens do not fit, the
longer text is cut, by default at its end. If b has no tokens, it has no [SEP] either.
"""

from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
    TypeVar)

import numpy as np

from encoder import vocabulary
from encoder.long_texts import LongTexts
from encoder.text_counts import FACT, TextCounts, describe
from engine import log
from engine.data import store
from engine.data.parts import in_chunks
from engine.errors import UserError
from engine.progress import Counter
from tokenization import BatchTokenizer

# Some models round their vocab_size up to a multiple of this.
_VOCAB_PADDING = 128
ONE_SEGMENT = ("type_vocab_size is 1: of pairs, the second text gets zeros in place of the embedding "
               "of its segment")

Item = TypeVar("Item")


class Encoding(NamedTuple):
    """How texts become ids. Made by `load_encoding`."""
    tokenizer: BatchTokenizer
    vocab_file: str
    vocab_hash: str
    do_lower_case: bool
    max_seq_length: int
    long_texts: LongTexts = LongTexts()
    counts: Optional[TextCounts] = None  # None without a tokenizer
    type_vocab_size: int = 2

    def encode(self, texts: Sequence[str]) -> Tuple[np.ndarray, np.ndarray]:
        """As `BatchTokenizer.encode_batch`; counts the texts."""
        ids, lengths = self.tokenizer.encode_batch(texts)
        self.counts.add(texts, ids, lengths)
        return ids, lengths

    def report(self, name: str, facts: Optional[Mapping[str, Any]] = None) -> None:
        """Logs how many texts of a set are cut; warns of those that the model cannot tell apart.

        Args:
            facts: of the set's store; default: of the texts that were encoded since the last call.
        """
        counts = (self.counts.take() if facts is None else facts).get(FACT, {})
        if counts.get("cut"):
            log.info(f"{name}: " + self.long_texts.describe(
                counts["cut"], counts["rows"], self.max_seq_length))
        warnings = [ONE_SEGMENT] if counts.get("pairs") and self.type_vocab_size == 1 else []
        if describe(counts):
            warnings.append(
                f"{name}: {describe(counts)}: the model cannot tell these apart; if their "
                "language or --do_lower_case is not the vocabulary's, take another model")
        for warning in sorted(set(warnings) - set(self.counts.warnings)):
            self.counts.warnings.append(warning)
            log.warn(warning)

    def facts(self) -> Dict[str, Any]:
        """What determines the ids of a text, for the key of a store."""
        return {"vocab": self.vocab_hash, "do_lower_case": self.do_lower_case,
                "max_seq_length": self.max_seq_length}

    @property
    def id_dtype(self) -> str:
        """NumPy's name of the ids' type in a store: "uint16" if it holds all ids, else "uint32"."""
        return "uint16" if self.tokenizer.largest_id < 2**16 else "uint32"


def load_encoding(vocab_file: str, *, do_lower_case: bool, max_seq_length: int,
                  vocab_size: int, type_vocab_size: int = 2) -> Encoding:
    """Loads the vocabulary and checks it against the model's `vocab_size`."""
    tokenizer = vocabulary.load_tokenizer(vocab_file, do_lower_case)
    if max_seq_length < 3:
        raise UserError(f"--max_seq_length={max_seq_length}: must be at least 3, for [CLS], a "
                        "token and [SEP]")
    num_entries = tokenizer.largest_id + 1
    difference = (f"--vocab_file={vocab_file} has {num_entries:,} entries, and "
                  f"--bert_config_file says vocab_size {vocab_size:,}")
    if num_entries > vocab_size:
        raise UserError(f"{difference}; they must belong to the same model")
    if num_entries <= vocab_size - _VOCAB_PADDING:
        raise UserError(f"{difference}: it is cut short or belongs to another model; if "
                        "neither, fill it up with lines such as [unused1]")
    if num_entries < vocab_size:
        log.warn(f"{difference}: the rest is taken for padding")
    return Encoding(tokenizer, vocab_file, vocabulary.content_hash(vocab_file), do_lower_case,
                    max_seq_length, counts=TextCounts(tokenizer.vocab["[UNK]"]),
                    type_vocab_size=type_vocab_size)


def open_or_tokenize(path: str, encoding: Encoding, store_dir: str, name: str,
                     key: Mapping[str, Any], columns: Mapping[str, store.Column],
                     read: Callable[[], Iterable[Item]],
                     encode: Callable[[List[Item]], store.Chunk], *, unit: str, chunk_size: int,
                     size_of: Callable[[Item], int] = lambda item: 1,
                     facts: Callable[[], Mapping[str, Any]] = dict) -> store.Store:
    """Opens the store of a file's texts, tokenizing them first if needed; reports what is odd.

    Args:
        path: of the file, for messages.
        store_dir, name, key, columns, facts: see `store.open_or_build`; the counts of texts are
            added to the facts.
        read: called only to tokenize; yields the items of the file, such as sentences.
        encode: makes a chunk of the store from items.
        unit: of items, in the plural, for messages.
        chunk_size, size_of: see `in_chunks`.
    """
    def chunks() -> Iterator[store.Chunk]:
        with Counter(f"Preparing {path}", unit=unit) as counter:
            for items in in_chunks(read(), chunk_size, size_of):
                yield encode(items)
                counter.advance(len(items))

    records = store.open_or_build(store_dir, name, key, columns, chunks,
                                  facts=lambda: {**facts(), **encoding.counts.take()})
    encoding.report(path, records.facts)
    return records


def encode_texts_and_pairs(texts_a: List[str], texts_b: List[str],
                           encoding: Encoding) -> store.Chunk:
    """The columns input_ids, first_segment_length, num_left_out and text of records.

    A text is a record; with `LongTexts.windows`, one that does not fit is several, each with a
    window of the longer text of a pair, and the other text as it is cut without windows. `text`
    counts texts from 0, and num_left_out the tokens of a text that did not fit into one record.

    Args:
        texts_a, texts_b: texts and second texts; an empty second text means that there is none.
    """
    encode, ways = encoding.encode, encoding.long_texts
    ids_a, lengths_a = encode(texts_a)
    ids_b, lengths_b = encode(texts_b)
    kept_a, kept_b = truncated_lengths(
        lengths_a, lengths_b, encoding.max_seq_length - 2 - (lengths_b > 0))
    a_is_longer = lengths_a > lengths_b
    texts, begins = ways.windows(np.where(a_is_longer, lengths_a, lengths_b),
                                 np.where(a_is_longer, kept_a, kept_b))
    first_segment_lengths = kept_a[texts] + 2
    lengths = first_segment_lengths + kept_b[texts] + (kept_b[texts] > 0)
    starts = np.cumsum(lengths) - lengths
    input_ids = np.full(lengths.sum(), encoding.tokenizer.sep_id, encoding.id_dtype)
    input_ids[starts] = encoding.tokenizer.cls_id
    for ids, its_lengths, kept, has_windows, targets in (
            (ids_a, lengths_a, kept_a, a_is_longer, starts + 1),
            (ids_b, lengths_b, kept_b, ~a_is_longer, starts + first_segment_lengths)):
        first = np.cumsum(its_lengths) - its_lengths
        heads = ways.num_head(its_lengths, kept)
        tails = kept - heads
        _copy(ids, first[texts] + begins * has_windows[texts], heads[texts],
              input_ids, targets)
        _copy(ids, (first + its_lengths - tails)[texts], tails[texts],
              input_ids, targets + heads[texts])
    left_out = lengths_a - kept_a + lengths_b - kept_b
    encoding.counts.add_rows(len(texts_a), (left_out > 0).sum(), (lengths_b > 0).sum())
    return {"input_ids": (input_ids, lengths), "first_segment_length": first_segment_lengths,
            "num_left_out": left_out[texts], "text": texts}


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


def _copy(values: np.ndarray, starts: np.ndarray, counts: np.ndarray, target: np.ndarray,
          target_starts: np.ndarray) -> None:
    """Copies `counts` values, from `starts` on, of a flat array to positions in `target`."""
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    target[np.repeat(target_starts, counts) + within] = values[np.repeat(starts, counts) + within]

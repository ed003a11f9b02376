"""How texts become token ids: the vocabulary, the casing and the layout of a record.

Layout, as in the original: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]. If the tokens do not fit, the
longer text is cut, by default at its end. If b has no tokens, it has no [SEP] either.
"""

import collections
import unicodedata
from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
    TypeVar)

import numpy as np

from encoder import vocabulary
from encoder.long_texts import LongTexts
from engine import log
from engine.data import store
from engine.disk.parts import in_chunks
from engine.errors import UserError
from engine.progress import Counter, counted
from tokenization import BatchTokenizer

# Some models round their vocab_size up to a multiple of this.
_VOCAB_PADDING = 128
ONE_SEGMENT = ("type_vocab_size is 1: of pairs, the second text gets zeros in place of the embedding "
               "of its segment")

COUNTS = "texts"  # the fact of a store that has the counts of its texts
# A larger share of one count in another makes a warning; of tokens, where there are as many.
_WARNING_SHARE, _MIN_TOKENS = 0.05, 50
_SHARES = (("unknown", "tokens", "of the tokens are [UNK]"),
           ("strange", "texts", "of the texts have no word that the vocabulary knows"),
           ("merged", "texts", "of the texts have the tokens of one with other words"))

Item = TypeVar("Item")


class TextCounts:
    """Counts texts as they are tokenized; keeps `warnings` of them, for the report of a run."""

    def __init__(self, unknown_id: int):
        self._unknown_id, self._counts = unknown_id, collections.Counter()
        self.warnings: List[str] = []

    def add(self, texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> None:
        """Counts texts that are not blank.

        Args:
            ids: of all texts, concatenated, before any is cut.
            lengths: the number of ids of each text, [n].
        """
        num_known = np.concatenate([[0], np.cumsum(ids != self._unknown_id)])
        ends, content, start, num_merged = np.cumsum(lengths), ids.tobytes(), 0, 0
        first: Dict[bytes, str] = {}  # the text with these ids
        for text, end in zip(texts, (ids.itemsize * ends).tolist()):
            key, start = content[start:end], end
            other = first.setdefault(key, text)
            if key and other != text and _plain(other) != _plain(text):
                num_merged += 1
        num_blank = sum(not texts[index].strip() for index in np.flatnonzero(lengths == 0))
        num_strange = int((num_known[ends] == num_known[ends - lengths]).sum()) - num_blank
        self._counts.update(texts=len(texts) - num_blank, strange=num_strange, merged=num_merged,
                            tokens=len(ids), unknown=len(ids) - int(num_known[-1]))
        num_marked = sum("[SEP]" in text for text in texts)
        if num_marked:
            self._counts["marked"] += num_marked

    def add_rows(self, count: int, num_cut: int = 0, num_pairs: int = 0) -> None:
        """Counts rows, the rows that are cut, and those that are pairs of texts."""
        self._counts.update(rows=count, cut=int(num_cut), pairs=int(num_pairs))

    def take(self) -> Dict[str, Any]:
        """The counts since the last call, as facts of a store."""
        counts, self._counts = dict(self._counts), collections.Counter()
        return {COUNTS: counts}


def _plain(text: str) -> List[str]:
    """The words without the differences that models of lower-cased text ignore: capitals and accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text.lower())
                   if unicodedata.category(letter) != "Mn").split()


def describe_counts(counts: Mapping[str, int]) -> str:
    """What shares of the texts the vocabulary does not know or tell apart; "" if they are small."""
    return ", ".join(f"{100 * counts[part] / counts[whole]:.3g}% {what}" for part, whole, what in _SHARES
                     if counts.get(part, 0) > _WARNING_SHARE * counts.get(whole, 0)
                     and (whole != "tokens" or counts[whole] >= _MIN_TOKENS))


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
        if any(texts):
            self.counts.add(texts, ids, lengths)
        return ids, lengths

    def report(self, name: str, facts: Optional[Mapping[str, Any]] = None) -> None:
        """Logs how many texts of a set are cut; warns of those that the model cannot tell apart.

        Args:
            facts: of the set's store; default: of the texts that were encoded since the last call.
        """
        counts = (self.counts.take() if facts is None else facts).get(COUNTS, {})
        if counts.get("cut"):
            log.info(f"{name}: " + self.long_texts.describe(
                counts["cut"], counts["rows"], self.max_seq_length))
        warnings = [ONE_SEGMENT] if counts.get("pairs") and self.type_vocab_size == 1 else []
        if counts.get("marked"):
            warnings.append(f"{name}: {counted(counts['marked'], 'texts')} with [SEP], which is read as a bracket, a word and "
                            "a bracket, as in Google's code, and as the token itself by Hugging Face's: write the two "
                            "sides of it as a pair of texts, or put another sign there")
        if describe_counts(counts):
            warnings.append(
                f"{name}: {describe_counts(counts)}: the model cannot tell these apart; if their "
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
    # Where the seven parts of each record begin in `pool`, and the number of their tokens: [CLS], the head and the
    # tail of a, [SEP], the head and the tail of b, [SEP].
    pool = np.concatenate([[encoding.tokenizer.cls_id, encoding.tokenizer.sep_id], ids_a, ids_b])
    starts, counts = np.zeros((2, len(texts), 7), np.int64)
    counts[:, 0] = starts[:, 3] = counts[:, 3] = starts[:, 6] = 1
    counts[:, 6] = kept_b[texts] > 0
    for part, before, its_lengths, kept, has_windows in (
            (1, 2, lengths_a, kept_a, a_is_longer), (4, 2 + len(ids_a), lengths_b, kept_b, ~a_is_longer)):
        heads, ends = ways.num_head(its_lengths, kept), before + np.cumsum(its_lengths)
        tails = kept - heads
        starts[:, part] = (ends - its_lengths)[texts] + begins * has_windows[texts]
        starts[:, part + 1] = (ends - tails)[texts]
        counts[:, part], counts[:, part + 1] = heads[texts], tails[texts]
    input_ids = pool[_ranges(starts.ravel(), counts.ravel())].astype(encoding.id_dtype)
    left_out = lengths_a - kept_a + lengths_b - kept_b
    encoding.counts.add_rows(len(texts_a), (left_out > 0).sum(), (lengths_b > 0).sum())
    return {"input_ids": (input_ids, counts.sum(axis=1)), "first_segment_length": kept_a[texts] + 2,
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


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers start, start + 1, … of each range, with so many numbers each, concatenated."""
    return np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)

"""Tagged sentences, tokenized in a store: a record is a window of a sentence."""

import json
import os
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from encoder.encoding import Encoding
from engine import log
from engine.data import store
from engine.data.batches import Source, token_features
from engine.data.chunks import in_chunks
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter
from tagging import schemes, windows
from tagging.formats import Sentence, TaggedFile

_SENTENCES_AT_A_TIME = 4096
_WORDS_VERSION = 2  # of how files are cut into words: stores of another one are prepared anew


class TagSet(NamedTuple):
    """What a model can predict."""
    types: Tuple[str, ...]  # of entities
    scheme: str  # of the files
    lists_mentions: bool = False  # whether they are JSON lines that have entities as CLUENER's do

    @property
    def labels(self) -> Tuple[str, ...]:
        """The tags that the model learns, in the order of its outputs."""
        return schemes.labels_of(self.types, schemes.learned(self.scheme))

    @property
    def transitions(self) -> schemes.Transitions:
        """Which of the labels may follow which."""
        return schemes.transitions(self.labels, schemes.learned(self.scheme))


def find_tags(file: TaggedFile) -> TagSet:
    """The types and the scheme of a file's tags; says which scheme it is.

    Raises:
        UserError: a tag is none, or the tags are of no scheme.
    """
    evidence, missed = schemes.Evidence(file.path), set()
    for sentence in file.sentences():
        evidence.add(sentence.tags, sentence.lines)
        missed.update(sentence.missed)
    given = file.layout.scheme if file.has_scheme else None
    found = TagSet(tuple(sorted(missed.union(evidence.types))), evidence.scheme(given),
                   file.lists_mentions)
    shown = ", ".join(found.types[:10]) + (", ..." if len(found.types) > 10 else "")
    log.info(f"{file.path}: tags in the scheme {found.scheme}; {len(found.types):,} types of "
             f"entities ({shown})")
    return found


class SentenceSet:
    """The sentences of one file, tokenized. Made by `load_sentences`, or `encode_words`.

    Attributes:
        records: the windows, with the columns of `_columns`.
        content_hash: identifies the file and what is read of it.
        file: None for sentences in memory.
    """

    def __init__(self, records: store.Records, tags: TagSet, content_hash: str,
                 max_seq_length: int, dynamic_padding: bool, file: Optional[TaggedFile] = None):
        self.records = records
        self.file = file
        self.tags = tags
        self.content_hash = content_hash
        self.max_seq_length = max_seq_length
        self.dynamic_padding = dynamic_padding

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.records)

    @property
    def first_windows(self) -> np.ndarray:
        """The number of each sentence's first window, [sentences]."""
        return np.flatnonzero(self.records.scalars("first_word") == 0)

    @property
    def has_long_sentences(self) -> bool:
        """Whether any sentence has several windows."""
        return len(self.first_windows) < len(self)

    @property
    def missed(self) -> List[str]:
        """The types of the true entities that no tags of the words can spell."""
        return [self.tags.types[index] for index in self.records.flat("missed").tolist()]

    def sentences(self) -> Iterator[Tuple[int, int]]:
        """The windows of each sentence: the first, and the one after the last."""
        first = self.first_windows.tolist()
        return zip(first, first[1:] + [len(self)])

    def source(self, label_weights: Optional[np.ndarray] = None) -> Source:
        """Batches of windows, of b windows with up to t tokens.

        Features: input_ids, input_mask, segment_ids; first_pieces, int32 [b, t], the position of
        each word's first piece; num_words, int32 [b]; opens and closes, float32 [b], whether the
        window has the sentence's first and last word; label_ids, int32 [b, t], of the words, 0 in
        a file without tags; and weights, float32 [b], of the loss of a word. In training, these
        are b / (the words of all windows of the step), so that the mean over windows, however
        they are divided among replicas, is the mean over the words of the step. With weights of
        the labels, training also has word_weights, float32 [b, t], 0 where there is no word, and
        weights are b / (their sum over the step).

        Args:
            label_weights: of each label in the training's loss, float32 [labels].
        """
        records = self.records

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            features = token_features(records, indices, length)
            features.update(
                first_pieces=records.padded("first_pieces", indices, length).astype(np.int32),
                num_words=records.lengths("first_pieces", indices).astype(np.int32),
                opens=(records.scalars("first_word", indices) == 0).astype(np.float32),
                closes=records.scalars("closes", indices).astype(np.float32),
                weights=np.ones(len(indices), np.float32),
                label_ids=np.zeros((len(indices), length), np.int32))
            if "labels" in records:
                features["label_ids"] = records.padded("labels", indices, length).astype(np.int32)
            return features

        def fetch_for_step(indices: np.ndarray, epochs: np.ndarray,
                           length: int) -> Dict[str, np.ndarray]:
            del epochs
            features = fetch(indices, length)
            total = features["num_words"].sum()
            if label_weights is not None:
                is_word = np.arange(length) < features["num_words"][:, np.newaxis]
                words = features["word_weights"] = label_weights[features["label_ids"]] * is_word
                total = words.sum(dtype=np.float64)
            features["weights"] *= np.float32(len(indices) / total)
            return features

        return Source(records.lengths("input_ids"), fetch, self.max_seq_length,
                      self.dynamic_padding,
                      fetch_for_step=fetch_for_step)


def _columns(encoding: Encoding, *, has_tags: bool) -> Dict[str, store.Column]:
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "first_segment_length": store.Column("int32", ragged=False),
               "first_pieces": store.Column("uint16", ragged=True),  # of each word: a position
               "first_word": store.Column("int32", ragged=False),  # its number in the sentence
               "closes": store.Column("uint8", ragged=False)}  # has the sentence's last word
    if has_tags:
        columns["labels"] = store.Column("uint16", ragged=True)  # of each word
        columns["missed"] = store.Column("uint16", ragged=True)  # types; with the first window
    return columns


def load_sentences(file: TaggedFile, tags: TagSet, encoding: Encoding, store_dir: str, *,
                   dynamic_padding: bool) -> SentenceSet:
    """Opens the tokenized sentences of a file; tokenizes them if the store does not have them yet.

    Raises:
        UserError: the file has a tag that the model does not know, or is not in its format.
    """
    content = [files.content_hash(file.path, os.path.join(store_dir, "hashes.json")),
               type(file).__name__, file.layout, file.has_tags]
    key = {"content": content, "words": _WORDS_VERSION, "tags": [tags.types, tags.scheme],
           "vocab": encoding.vocab_hash, "do_lower_case": encoding.do_lower_case,
           "max_seq_length": encoding.max_seq_length}

    def chunks() -> Iterator[store.Chunk]:
        with Counter(f"Preparing {file.path}", unit="sentences") as counter:
            for sentences in in_chunks(_checked(file, tags), _SENTENCES_AT_A_TIME):
                yield _encode(sentences, tags, encoding, file.path if file.has_tags else None)
                counter.advance(len(sentences))

    name = os.path.splitext(os.path.basename(file.path))[0]
    records = store.open_or_build(store_dir, f"tags-{name}", key,
                                  _columns(encoding, has_tags=file.has_tags), chunks)
    if not len(records):
        raise UserError(f"{file.path} holds no sentences")
    found = SentenceSet(records, tags, files.hash_of(json.dumps(content).encode("utf-8")),
                        encoding.max_seq_length, dynamic_padding, file)
    _report(found, file)
    return found


def _checked(file: TaggedFile, tags: TagSet) -> Iterator[Sentence]:
    """The sentences; raises a UserError at their end if their tags are in another scheme."""
    evidence = schemes.Evidence(file.path)
    for sentence in file.sentences():
        if file.has_tags:
            evidence.add(sentence.tags, sentence.lines)
        yield sentence
    if file.has_tags and file.has_scheme:
        evidence.check(tags.scheme, is_given=file.layout.scheme is not None)


def _report(found: SentenceSet, file: TaggedFile) -> None:
    num_long = int((np.diff(np.append(found.first_windows, len(found))) > 1).sum())
    if num_long:
        log.info(f"{file.path}: {num_long:,} of {len(found.first_windows):,} sentences are longer "
                 f"than --max_seq_length={found.max_seq_length}: they are read in overlapping "
                 "windows")
    if file.has_tags and found.missed:
        log.warn(f"{file.path}: {len(found.missed):,} entities begin or end within a word or "
                 "overlap others: they are not trained on, and count as not found")


def encode_words(sentences: List[List[str]], tags: TagSet, encoding: Encoding) -> SentenceSet:
    """Words of sentences in memory, tokenized to be tagged."""
    found = [Sentence(words, [], None) for words in sentences]
    return SentenceSet(store.Records.of_chunk(_encode(found, tags, encoding, None)), tags, "",
                       encoding.max_seq_length, dynamic_padding=True)


def _encode(sentences: List[Sentence], tags: TagSet, encoding: Encoding,
            tagged_file: Optional[str]) -> store.Chunk:
    """Tokenizes sentences into a chunk of the store.

    Args:
        tagged_file: where their tags are from; None if they have none.
    """
    has_tags = tagged_file is not None
    limit = encoding.max_seq_length - 2
    ids, counts = _pieces([word for sentence in sentences for word in sentence.words], encoding)
    piece_starts = np.cumsum(counts) - counts
    counts = np.minimum(counts, limit)  # of a word with more, the first
    label_of = {label: index for index, label in enumerate(tags.labels)}
    rows: Dict[str, List] = {name: [] for name in _columns(encoding, has_tags=has_tags)}
    word = 0
    for sentence in sentences:
        words = slice(word, word + len(sentence.words))
        word = words.stop
        labels = _labels(sentence, tagged_file, tags, label_of) if has_tags else None
        for window in windows.cut(counts[words], limit):
            starts, lengths = (values[words][window.first:window.end]
                               for values in (piece_starts, counts))
            _add_window(rows, encoding, ids, starts, lengths)
            rows["first_word"].append(window.first)
            rows["closes"].append(window.end == len(sentence.words))
            if labels is not None:
                rows["labels"].append(labels[window.first:window.end])
                missed = sentence.missed if window.first == 0 else ()
                rows["missed"].append([_type_index(name, tags, tagged_file, sentence)
                                       for name in missed])
    return _as_chunk(rows, _columns(encoding, has_tags=has_tags))


def _pieces(words: List[str], encoding: Encoding) -> Tuple[np.ndarray, np.ndarray]:
    """The ids of all words, concatenated, and their number for each word, at least 1.

    A word without pieces, such as a control character, is an unknown one.
    """
    ids, counts = encoding.tokenizer.encode_batch(words)
    empty = np.flatnonzero(counts == 0)
    unknown = encoding.tokenizer.vocab["[UNK]"]
    ids = np.insert(ids, (np.cumsum(counts) - counts)[empty], unknown)
    return ids, np.maximum(counts, 1)


def _add_window(rows: Dict[str, List], encoding: Encoding, ids: np.ndarray, starts: np.ndarray,
                lengths: np.ndarray) -> None:
    """Adds the tokens of a window.

    Args:
        starts, lengths: where the pieces of each of its words are in `ids`.
    """
    first_pieces = np.cumsum(lengths) - lengths
    positions = np.repeat(starts - first_pieces, lengths) + np.arange(lengths.sum())
    tokenizer = encoding.tokenizer
    rows["input_ids"].append(np.concatenate([[tokenizer.cls_id], ids[positions],
                                             [tokenizer.sep_id]]))
    rows["first_segment_length"].append(len(positions) + 2)
    rows["first_pieces"].append(first_pieces + 1)  # after [CLS]


def _labels(sentence: Sentence, path: str, tags: TagSet,
            label_of: Dict[str, int]) -> List[int]:
    found = schemes.entities(sentence.tags)
    for entity in found:
        if entity.type not in tags.types:
            raise _unknown(entity.type, tags, path, sentence.lines[entity.first])
    spelled = schemes.spell(found, len(sentence.words), schemes.learned(tags.scheme))
    return [label_of[tag] for tag in spelled]


def _type_index(name: str, tags: TagSet, path: str, sentence: Sentence) -> int:
    if name not in tags.types:
        raise _unknown(name, tags, path, sentence.lines[0])
    return tags.types.index(name)


def _unknown(name: str, tags: TagSet, path: str, line: int) -> UserError:
    return UserError(f"{path}, line {line}: an entity of the type {name[:40]!r}, which the "
                     f"model does not know: the training file has {', '.join(tags.types[:20])}")


def _as_chunk(rows: Dict[str, List], columns: Dict[str, store.Column]) -> store.Chunk:
    chunk = {}
    for name, values in rows.items():
        if columns[name].ragged:
            flat = np.concatenate([np.asarray(value, np.int64) for value in values])
            chunk[name] = flat, np.array([len(value) for value in values])
        else:
            chunk[name] = np.array(values)
    return chunk

"""Tagged sentences, tokenized in a store: a record is a window of a sentence."""

import collections
import dataclasses
import pathlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from encoder import windows
from encoder.encoding import Encoding, open_or_tokenize
from encoder.tag_set import IOB1, IOB2, NAMES, TagSet
from engine import log
from engine.data import store
from engine.data.batches import Features, Source, token_features
from engine.data.store import chunk_of
from engine.disk import files, provenance
from engine.errors import UserError
from engine.model import Baseline
from tagging import schemes
from tagging.formats import Sentence, TaggedFile

_SENTENCES_AT_A_TIME = 4096
_WORDS_VERSION = 4  # of how files are cut into words and windows: other stores are prepared anew


def find_tags(file: TaggedFile) -> TagSet:
    """The types of a file's entities, and the scheme that spells most of its sentences."""
    types, spelled, num_sentences, num_learned, num_missed = set(), collections.Counter(), 0, 0, 0
    for sentence in file.sentences():
        entities = schemes.entities(sentence.tags)
        num_sentences, num_learned = num_sentences + 1, num_learned + len(entities)
        num_missed += len(sentence.missed)
        types.update(sentence.missed, (entity.type for entity in entities))
        spelled.update(scheme for scheme in NAMES if sentence.tags == schemes.spell(
            entities, len(sentence.tags), scheme))
    if not types:
        raise UserError(f"{file.path} has no entity: every tag is O; is --tag_column right?")
    if not num_learned:
        raise UserError(f"{file.path}: all {num_missed:,} entities begin or end within a word; \"end\" must be the place "
                        "behind the last character: are the ends those of the last character, or is \"start\" from 1?")
    scheme = max(NAMES, key=lambda name: spelled[name])  # of equals, the first
    names = sorted(types)
    log.info(f"{file.path}: tags in the scheme {scheme}; {len(names):,} types of entities "
             f"({', '.join(names[:10])}{', ...' if len(names) > 10 else ''})")
    if spelled[scheme] < num_sentences:
        log.warn(f"{file.path}: {num_sentences - spelled[scheme]:,} of {num_sentences:,} sentences "
                 f"are not tagged as {scheme} has it; entities are read as conlleval reads them")
    return TagSet(tuple(names), scheme)


@dataclasses.dataclass(frozen=True)
class SentenceSet:
    """The sentences of one file, tokenized. Made by `load_sentences`, or `encode_words`."""
    records: store.Records  # the windows, with the columns of `_columns`
    tags: TagSet
    max_seq_length: int
    content_hash: str = ""  # identifies the file and what is read of it
    file: Optional[TaggedFile] = None  # None for sentences in memory

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.records)

    def of_sentences(self, labels: np.ndarray) -> List[np.ndarray]:
        """The labels of each sentence's words, of those that all windows have, [windows, words].

        A word has the label of the window where it has most context.
        """
        first, count = (self.records.scalars(name)[:, np.newaxis]
                        for name in ("first_decided", "num_decided"))
        number = np.arange(labels.shape[1])
        decided = labels[(number >= first) & (number < first + count)]
        ends = np.cumsum(count)[self.records.scalars("closes") == 1]
        return np.split(decided, ends[:-1])

    def baseline(self) -> Baseline:
        """Always predicting the frequencies of the tags."""
        counts = np.bincount(self.records.flat("labels"), minlength=len(self.tags.labels))
        losses = np.log(counts.sum()) - np.log(np.maximum(counts, 1))
        return Baseline("always predicting the tags' frequencies", lambda indices: float(
            losses[self.records.values("labels", indices)[0]].mean()))

    def source(self) -> Source:
        """Batches of windows, of b windows with up to t tokens.

        Features: input_ids, input_mask, segment_ids; first_pieces, int32 [b, t], the position of
        each word's first piece; num_words, int32 [b]; opens and closes, float32 [b], whether the
        window has the sentence's first and last word; label_ids, int32 [b, t], of the words, 0 in
        a file without tags; and weights, float32 [b], of the loss of a word. In training, these
        are b / (the words of all windows of the step), so that the mean over windows, however
        they are divided among replicas, is the mean over the words of the step.
        """
        records = self.records

        def fetch(indices: np.ndarray, length: int) -> Features:
            features = token_features(records, indices, length)
            features.update(
                first_pieces=records.padded("first_pieces", indices, length).astype(np.int32),
                num_words=records.lengths("first_pieces", indices).astype(np.int32),
                opens=records.scalars("opens", indices).astype(np.float32),
                closes=records.scalars("closes", indices).astype(np.float32),
                weights=np.ones(len(indices), np.float32),
                label_ids=np.zeros((len(indices), length), np.int32))
            if "labels" in records:
                features["label_ids"] = records.padded("labels", indices, length).astype(np.int32)
            return features

        def fetch_for_step(indices: np.ndarray, length: int) -> Features:
            features = fetch(indices, length)
            features["weights"] *= np.float32(len(indices) / features["num_words"].sum())
            return features

        return Source(records.lengths("input_ids"), fetch, self.max_seq_length,
                      fetch_for_step=fetch_for_step)


def _columns(encoding: Encoding, *, has_tags: bool) -> Dict[str, store.Column]:
    number = store.Column("int32", ragged=False)
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True),
               "first_segment_length": number,
               "first_pieces": store.Column("uint16", ragged=True),  # of each word: a position
               # The words whose labels the window decides, and whether it has the sentence's ends.
               "first_decided": number, "num_decided": number, "opens": number, "closes": number}
    return {**columns, "labels": store.Column("uint16", ragged=True)} if has_tags else columns


def load_sentences(file: TaggedFile, tags: TagSet, encoding: Encoding, store_dir: str) -> SentenceSet:
    """Opens the tokenized sentences of a file; tokenizes them if the store does not have them yet."""
    content = [provenance.content_hash(file.path, store_dir), type(file).__name__, file.layout,
               file.has_tags, *filter(None, [file.left_out])]
    key = {"content": content, "words": _WORDS_VERSION, "tags": [tags.types, tags.scheme, *tags.own_tags],
           **encoding.facts()}
    missed: Dict[str, int] = collections.Counter()  # entities that no tags can spell, by type

    def read() -> Iterator[Sentence]:
        missed.clear()
        return file.sentences()

    def encode(sentences: List[Sentence]) -> store.Chunk:
        missed.update(name for sentence in sentences for name in sentence.missed)
        return _encode(sentences, tags, encoding, file.path if file.has_tags else None)

    records = open_or_tokenize(
        file.path, encoding, store_dir, f"tags-{pathlib.Path(file.path).stem}", key,
        _columns(encoding, has_tags=file.has_tags), read, encode, unit="sentences",
        chunk_size=_SENTENCES_AT_A_TIME, facts=lambda: {"missed": missed})
    if not len(records):
        raise UserError(f"{file.path} holds no sentences")
    if file.left_out:
        log.info(f"{file.path}: {file.left_out}")
    opens, closes = (records.scalars(name) == 1 for name in ("opens", "closes"))
    num_long, num_missed = int((opens & ~closes).sum()), sum(records.facts["missed"].values())
    if num_long:
        log.info(f"{file.path}: {num_long:,} of {int(opens.sum()):,} sentences are longer than "
                 f"--max_seq_length={encoding.max_seq_length}: they are read in overlapping "
                 "windows")
    if num_missed:
        log.warn(f"{file.path}: {num_missed:,} entities begin or end within a word or overlap "
                 "others: they are not trained on, and count as not found")
    return SentenceSet(records, tags, encoding.max_seq_length, files.hash_of_json(content), file)


def encode_words(sentences: List[List[str]], tags: TagSet, encoding: Encoding) -> SentenceSet:
    """Words of sentences in memory, tokenized to be tagged."""
    untagged = [Sentence(words, [], None) for words in sentences]
    return SentenceSet(store.Records.of_chunk(_encode(untagged, tags, encoding, None)), tags,
                       encoding.max_seq_length)


def _encode(sentences: List[Sentence], tags: TagSet, encoding: Encoding,
            tagged_file: Optional[str]) -> store.Chunk:
    """Tokenizes sentences into a chunk of the store.

    Args:
        tagged_file: where their tags are from; None if they have none.
    """
    room = encoding.max_seq_length - 2
    stride = max(1, room // 2)
    ids, counts = _pieces([word for sentence in sentences for word in sentence.words], encoding,
                          stride)  # more in a word, and a window might have the beginning of none
    label_of = {label: index for index, label in enumerate(tags.labels)}
    rows: List[Dict[str, Any]] = []
    sizes: List[int] = []
    word = piece = 0
    for sentence in sentences:
        lengths = counts[word:word + len(sentence.words)]
        num_pieces = int(lengths.sum())
        labels = _labels(sentence, tagged_file, tags, label_of) if tagged_file else []
        rows += _windows(ids[piece:piece + num_pieces], np.cumsum(lengths) - lengths, labels,
                         windows.over(num_pieces, room, stride), encoding)
        word += len(lengths)
        piece += num_pieces
        sizes.append(num_pieces)
    encoding.counts.add([" ".join(each.words) for each in sentences], ids, np.array(sizes))
    return chunk_of(rows, _columns(encoding, has_tags=tagged_file is not None))


def _pieces(words: List[str], encoding: Encoding, most: int) -> Tuple[np.ndarray, np.ndarray]:
    """The ids of all words, concatenated, and their number for each word, from 1 to `most`.

    A word without pieces, such as a control character, is an unknown one.
    """
    ids, counts = encoding.tokenizer.encode_batch(words)
    empty = np.flatnonzero(counts == 0)
    unknown = encoding.tokenizer.vocab["[UNK]"]
    ids = np.insert(ids, (np.cumsum(counts) - counts)[empty], unknown)
    counts = np.maximum(counts, 1)
    number = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ids[number < most], np.minimum(counts, most)


def _windows(ids: np.ndarray, starts: np.ndarray, labels: List[int], spans: windows.Windows,
             encoding: Encoding) -> Iterator[Dict[str, Any]]:
    """The records of a sentence.

    Args:
        ids: its pieces.
        starts: the first piece of each word.
        labels: of each word; may be empty.
    """
    tokenizer, deciding = encoding.tokenizer, windows.of_most_context(spans)[starts]
    for number, (start, length) in enumerate(zip(*spans)):
        first, end = np.searchsorted(starts, [start, start + length])  # the words that begin in it
        first_decided, end_decided = np.searchsorted(deciding, [number, number + 1])
        yield {"input_ids": np.concatenate([[tokenizer.cls_id], ids[start:start + length],
                                            [tokenizer.sep_id]]),
               "first_segment_length": length + 2,
               "first_pieces": starts[first:end] - start + 1,  # after [CLS]
               "first_decided": first_decided - first, "num_decided": end_decided - first_decided,
               "opens": first == 0, "closes": number == len(spans.starts) - 1,
               "labels": labels[first:end]}


def _labels(sentence: Sentence, path: str, tags: TagSet,
            label_of: Dict[str, int]) -> List[int]:
    entities = schemes.entities(sentence.tags)
    for entity in entities:
        if entity.type not in tags.types:
            raise UserError(
                f"{path}, line {sentence.lines[entity.first]}: an entity of the type "
                f"{entity.type[:40]!r}, which the model does not know: the training file has "
                f"{', '.join(tags.types[:20])}")
    # A tag of IOB1 depends on the entity before; IOB2 is learned in its place.
    scheme = IOB2 if tags.scheme == IOB1 and not tags.own_tags else tags.scheme
    spelled = schemes.spell(entities, len(sentence.words), scheme)
    missing = next((place for place, tag in enumerate(spelled) if tag not in label_of), None)
    if missing is not None:
        raise UserError(f"{path}, line {sentence.lines[missing]}: an entity needs the tag {spelled[missing]}, which "
                        f"the model does not have: it has {', '.join(tags.labels[:20])}")
    return [label_of[tag] for tag in spelled]

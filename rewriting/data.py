"""A file of slots and phrases, tokenized in a store: what the scorer trains on and is ranked on."""

import os
from typing import Dict, Iterator, List, NamedTuple, Sequence

import numpy as np

from encoder.encoding import Encoding
from engine import files, log
from engine.data import store
from engine.data.batches import Source
from engine.data.chunks import in_chunks
from engine.errors import UserError
from engine.progress import Counter
from rewriting import pairs, questions, ranking
from rewriting.questions import Question
from tasks import label_types

LABELS = ("does not fit", "fits")
KIND = label_types.SingleLabel(LABELS)
_QUESTIONS_AT_A_TIME = 4096


class QuestionSet(NamedTuple):
    """The slots of a file with their phrases. Made by `load_questions`."""
    pairs: pairs.Pairs  # slot by slot, of each the fitting phrase first
    num_phrases: np.ndarray  # of each slot, [slots]
    num_fitting: np.ndarray  # of each slot, 0 or 1, [slots]
    content_hash: str

    @property
    def starts(self) -> np.ndarray:
        """The first pair of each slot, [slots]."""
        return np.cumsum(self.num_phrases) - self.num_phrases

    @property
    def labels(self) -> np.ndarray:
        """Of each pair, an index of LABELS, int32 [pairs]."""
        labels = np.zeros(len(self.pairs), np.int32)
        labels[self.starts[self.num_fitting > 0]] = 1
        return labels

    @property
    def is_ranked(self) -> np.ndarray:
        """See `ranking.is_ranked`, bool [slots]."""
        return ranking.is_ranked(self.num_phrases, self.num_fitting)


class PairwiseSet(NamedTuple):
    """To be trained on pair by pair, as tasks.training has it."""
    questions: QuestionSet
    kind: label_types.Kind = KIND
    has_pairs: bool = True

    @property
    def content_hash(self) -> str:
        return self.questions.content_hash

    def __len__(self) -> int:
        return len(self.questions.pairs)

    def source(self, *, with_labels: bool) -> Source:
        """Batches of pairs, with label_ids, int32 [b]."""
        source, labels = self.questions.pairs.source(), self.questions.labels

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**source.fetch(indices, length), "label_ids": labels[indices]}

        return source._replace(fetch=fetch) if with_labels else source


class ListwiseSet(NamedTuple):
    """To be trained on slot by slot: the slots that have a right phrase and a wrong one."""
    questions: QuestionSet
    slots: np.ndarray  # their numbers
    kind: label_types.Kind = KIND
    has_pairs: bool = True

    @property
    def content_hash(self) -> str:
        return self.questions.content_hash

    def __len__(self) -> int:
        return len(self.slots)

    def source(self, *, with_labels: bool) -> Source:
        """Batches of whole slots, b of them with up to c phrases, the right one first.

        The features of a pair, each int32 [b, c, t], and num_phrases, int32 [b].
        """
        del with_labels  # which phrase is right is a matter of its place
        starts, num_phrases = self.questions.starts, self.questions.num_phrases
        one_by_one = self.questions.pairs.source()
        lengths = np.maximum.reduceat(one_by_one.lengths, starts)[self.slots]

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            slots = self.slots[indices]
            counts = num_phrases[slots, np.newaxis]
            places = np.arange(counts.max())
            # A slot with fewer phrases is filled up with its first one, which is not counted.
            numbers = starts[slots, np.newaxis] + np.where(places < counts, places, 0)
            features = one_by_one.fetch(numbers.ravel(), length)
            features = {name: values.reshape(*numbers.shape, length)
                        for name, values in features.items()}
            return {**features, "num_phrases": counts[:, 0].astype(np.int32)}

        return one_by_one._replace(lengths=lengths, fetch=fetch)


def listwise_set(found: QuestionSet) -> ListwiseSet:
    """Raises a UserError where no slot has a phrase that fits and one that does not."""
    slots = np.flatnonzero(found.is_ranked)
    if not len(slots):
        raise UserError("no slot of the train set has both a phrase that fits and one that does "
                        "not: --objective=listwise has nothing to learn from")
    if len(slots) < len(found.num_phrases):
        log.warn(f"{len(found.num_phrases) - len(slots):,} slots of the train set lack a phrase "
                 "that fits, or one that does not: --objective=listwise leaves them out")
    return ListwiseSet(found, slots)


def load_questions(path: str, encoding: Encoding, store_dir: str, *,
                   dynamic_padding: bool) -> QuestionSet:
    """Opens the tokenized slots of a file, preparing them first where needed.

    A phrase that the model cannot read is left out, too long for it or without tokens; with
    the phrase that fits, the slot.

    Raises:
        UserError: the file is not as `questions.read_questions` wants it.
    """
    files.require_file(path, "the set")
    content = files.content_hash(path, os.path.join(store_dir, "hashes.json"))
    key = {"content": content, "format": os.path.splitext(path)[1], "vocab": encoding.vocab_hash,
           "do_lower_case": encoding.do_lower_case, "max_seq_length": encoding.max_seq_length}
    columns = {**pairs.context_columns(encoding),
               "ids": store.Column(encoding.id_dtype, ragged=True),
               "phrase_lengths": store.Column("int32", ragged=True),
               "num_fitting": store.Column("uint8", ragged=False)}

    def chunks() -> Iterator[store.Chunk]:
        read = questions.read_questions(path)
        num_unreadable = num_lost_slots = 0
        with Counter(f"Preparing {path}", unit="slots") as counter:
            for some in in_chunks(read, _QUESTIONS_AT_A_TIME):
                found = _readable(some, encoding)
                num_unreadable += int((~found.is_readable).sum())
                num_lost_slots += int((~found.slot_kept).sum())
                if found.slot_kept.any():
                    yield _encode(some, found, encoding)
                counter.advance(len(some))
        if num_unreadable:
            log.warn(f"{path}: {num_unreadable:,} phrases are left out, and with their own phrase "
                     f"{num_lost_slots:,} slots: they have no tokens or more than "
                     f"{pairs.longest_phrase(encoding.max_seq_length)}, and the model "
                     f"reads a phrase twice within --max_seq_length={encoding.max_seq_length}")

    name = os.path.splitext(os.path.basename(path))[0]
    records = store.open_or_build(store_dir, f"slots-{name}", key, columns, chunks)
    if not len(records):
        raise UserError(f"{path}: no phrase is short enough for "
                        f"--max_seq_length={encoding.max_seq_length}")
    return _question_set(records, content, encoding, dynamic_padding)


class _Readable(NamedTuple):
    """What of some slots a model can read, with the tokens of all their phrases."""
    ids: np.ndarray  # of all phrases, one behind the other
    lengths: np.ndarray  # of each phrase
    starts: np.ndarray  # of each slot, its first phrase
    is_readable: np.ndarray  # of each phrase, whether the model can read it
    phrase_kept: np.ndarray  # the same, and it is of a slot that is kept
    slot_kept: np.ndarray  # of each slot


def _readable(some: Sequence[Question], encoding: Encoding) -> _Readable:
    num_phrases = [len(question.phrases) for question in some]
    ids, lengths = encoding.tokenizer.encode_batch(
        [phrase for question in some for phrase in question.phrases])
    is_readable = (lengths > 0) & (lengths <= pairs.longest_phrase(encoding.max_seq_length))
    starts = np.cumsum(num_phrases) - num_phrases
    has_own = np.array([question.num_fitting > 0 for question in some])
    slot_kept = (~has_own | is_readable[starts]) & np.logical_or.reduceat(is_readable, starts)
    return _Readable(ids, lengths, starts, is_readable,
                     is_readable & np.repeat(slot_kept, num_phrases), slot_kept)


def readable_questions(some: Sequence[Question], encoding: Encoding) -> List[Question]:
    """The slots and phrases that `load_questions` keeps."""
    found = _readable(some, encoding)
    return [question._replace(phrases=tuple(
        phrase for number, phrase in enumerate(question.phrases, start)
        if found.is_readable[number]))
        for question, start, kept in zip(some, found.starts, found.slot_kept) if kept]


def _encode(some: Sequence[Question], found: _Readable, encoding: Encoding) -> store.Chunk:
    kept = [question for question, keep in zip(some, found.slot_kept) if keep]
    per_question = np.add.reduceat(
        found.phrase_kept.astype(np.int64), found.starts)[found.slot_kept]
    kept_lengths = found.lengths[found.phrase_kept]
    ends = np.cumsum(kept_lengths)
    question_ends = np.cumsum(per_question)
    flat_ends = np.concatenate([[0], ends])[np.concatenate([[0], question_ends])]
    contexts = pairs.encode_contexts([question.before for question in kept],
                                     [question.after for question in kept], encoding)
    return {**contexts,
            "ids": (found.ids[np.repeat(found.phrase_kept, found.lengths)], np.diff(flat_ends)),
            "phrase_lengths": (kept_lengths, per_question),
            "num_fitting": np.array([question.num_fitting for question in kept])}


def _question_set(records: store.Records, content: str, encoding: Encoding,
                  dynamic_padding: bool) -> QuestionSet:
    num_phrases = records.lengths("phrase_lengths")
    phrase_lengths = records.flat("phrase_lengths")
    # The same token ids, a phrase a record.
    phrases = store.Records(len(phrase_lengths), {"ids": records.flat("ids")},
                            {"ids": np.concatenate([[0], np.cumsum(phrase_lengths)])})
    slots = np.repeat(np.arange(len(records), dtype=np.int32), num_phrases)
    numbers = np.arange(len(phrases), dtype=np.int32)
    return QuestionSet(
        pairs.Pairs(records, phrases, slots, numbers, encoding.tokenizer,
                    encoding.max_seq_length, dynamic_padding),
        num_phrases, records.scalars("num_fitting"), content)

"""Slots with candidate phrases, tokenized in a store, for training and ranking."""

import os
from typing import Dict, Iterator, List, NamedTuple, Sequence

import numpy as np

from encoder.encoding import Encoding
from engine import log
from engine.data import store
from engine.data.batches import Source
from engine.data.chunks import in_chunks
from engine.data.odd_rows import OddRows
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter
from rewriting import pairs, phrases, ranking, slot_files
from rewriting.slot_files import SlotExample
from runs import label_types
from tasks.data import TrainingSet

KIND = label_types.Scorer(("does not fit", "fits"))
_SLOTS_AT_A_TIME = 4096


class SlotSet(NamedTuple):
    """The slots of a file with their phrases. Made by `load_slots`."""
    pairs: pairs.Pairs  # slot by slot, the fitting phrase first
    num_phrases: np.ndarray  # of each slot, [slots]
    num_fitting: np.ndarray  # fitting phrases of each slot, 0 or 1, [slots]
    content_hash: str

    @property
    def starts(self) -> np.ndarray:
        """The first pair of each slot, [slots]."""
        return np.cumsum(self.num_phrases) - self.num_phrases

    @property
    def labels(self) -> np.ndarray:
        """The label of each pair, an index of KIND.labels, int32 [pairs]."""
        labels = np.zeros(len(self.pairs), np.int32)
        labels[self.starts[self.num_fitting > 0]] = 1
        return labels

    @property
    def categories(self) -> List[str]:
        """The category of each slot, "" if it has none, [slots]."""
        return [text for _, text in phrases.decode_all(self.pairs.contexts, "category")]

    @property
    def is_readable(self) -> np.ndarray:
        """Whether the model can read the phrase of each pair, bool [pairs]."""
        return self.pairs.candidates.lengths("ids") > 0

    @property
    def is_ranked(self) -> np.ndarray:
        """See `ranking.is_ranked`, bool [slots]."""
        return ranking.is_ranked(self.num_phrases, self.num_fitting)


class _SlotTrainingSet(TrainingSet):
    """Trains on slots."""
    kind = KIND
    has_pairs = True

    def __init__(self, slot_set: SlotSet):
        self.slot_set = slot_set
        self.content_hash = slot_set.content_hash

    @property
    def store_name(self) -> str:
        """See `TrainingSet`."""
        return os.path.basename(self.slot_set.pairs.contexts.directory)


class PairwiseSet(_SlotTrainingSet):
    """Trains on one pair at a time."""

    def __len__(self) -> int:
        return len(self.slot_set.pairs)

    def source(self, *, with_labels: bool) -> Source:
        """Batches of pairs; with labels they have label_ids, int32 [b]."""
        source, labels = self.slot_set.pairs.source(), self.slot_set.labels

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**source.fetch(indices, length), "label_ids": labels[indices]}

        return source._replace(fetch=fetch) if with_labels else source


class ListwiseSet(_SlotTrainingSet):
    """Trains on one slot at a time: those that have a right phrase and a wrong one.

    Args:
        slots: the numbers of these slots, [n].
    """

    def __init__(self, slot_set: SlotSet, slots: np.ndarray):
        super().__init__(slot_set)
        self.slots = slots

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def mean_phrases(self) -> float:
        """Phrases of a slot, on average."""
        return float(self.slot_set.num_phrases[self.slots].mean())

    def source(self, *, with_labels: bool) -> Source:
        """Batches of whole slots, b of them with up to c phrases, the right one first.

        The features of a pair, each int32 [b, c, t], and num_phrases, int32 [b].
        """
        del with_labels  # the position of a phrase tells whether it is right
        starts, num_phrases = self.slot_set.starts, self.slot_set.num_phrases
        one_by_one = self.slot_set.pairs.source()
        lengths = np.maximum.reduceat(one_by_one.lengths, starts)[self.slots]

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            slots = self.slots[indices]
            counts = num_phrases[slots, np.newaxis]
            positions = np.arange(counts.max())
            # A slot with fewer phrases is padded with its first one, which is not counted.
            numbers = starts[slots, np.newaxis] + np.where(positions < counts, positions, 0)
            features = one_by_one.fetch(numbers.ravel(), length)
            features = {name: values.reshape(*numbers.shape, length)
                        for name, values in features.items()}
            return {**features, "num_phrases": counts[:, 0].astype(np.int32)}

        return one_by_one._replace(
            lengths=lengths, fetch=fetch,
            fetch_for_step=lambda indices, epochs, length: fetch(indices, length))


def listwise_set(found: SlotSet) -> ListwiseSet:
    """The slots with a right and a wrong phrase; raises a UserError if there are none."""
    slots = np.flatnonzero(found.is_ranked)
    if not len(slots):
        raise UserError("no slot of the train set has both a phrase that fits and one that does "
                        "not: --objective=listwise has nothing to learn from")
    if len(slots) < len(found.num_phrases):
        log.warn(f"{len(found.num_phrases) - len(slots):,} slots of the train set lack a phrase "
                 "that fits, or one that does not: --objective=listwise leaves them out")
    return ListwiseSet(found, slots)


def load_slots(path: str, encoding: Encoding, store_dir: str, *, dynamic_padding: bool,
               unlabelled: bool = False) -> SlotSet:
    """Opens the tokenized slots of a file, preparing them first if needed.

    A phrase that the model cannot read (too long, or without tokens) is skipped. If it is the
    one that fits, its slot is skipped.

    Args:
        unlabelled: for predictions: the pairs are all phrases of the file, in its order, whether
            they fit or not, and whether the model can read them or not.

    Raises:
        UserError: the file is not in a format of `slot_files.read_slots`, or if unlabelled of
            `slot_files.read_lines`, or the model can read none of its phrases.
    """
    files.require_file(path, "the set")
    content = files.content_hash(path, os.path.join(store_dir, "hashes.json"))
    key = {"content": content, "format": os.path.splitext(path)[1], "vocab": encoding.vocab_hash,
           "do_lower_case": encoding.do_lower_case, "max_seq_length": encoding.max_seq_length,
           "unlabelled": unlabelled}
    columns = {**pairs.context_columns(encoding),
               "ids": store.Column(encoding.id_dtype, ragged=True),
               "phrase_lengths": store.Column("int32", ragged=True),
               "num_fitting": store.Column("uint8", ragged=False),
               "category": phrases.COLUMN}

    malformed = OddRows("")  # lines, when they are prepared

    def chunks() -> Iterator[store.Chunk]:
        read = (slot_files.read_lines(path, malformed) if unlabelled
                else slot_files.read_slots(path))
        num_unreadable = num_lost_slots = 0
        with Counter(f"Preparing {path}", unit="slots") as counter:
            for some in in_chunks(read, _SLOTS_AT_A_TIME):
                found = _readable(some, encoding)
                if unlabelled:
                    found = _with_all(found)
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
    found = _slot_set(records, content, encoding, dynamic_padding)
    if unlabelled:
        odd = OddRows("phrases have no score, and empty lines in the predictions")
        for number in np.flatnonzero(~found.is_readable) + 1:
            odd.add(f"{path}, phrase {number:,}: {unread(encoding)}, or its line is no slot"
                    + (f": {malformed.first}" if malformed.first else ""))
        odd.report(len(found.pairs))
    return found


def encode_slots(some: Sequence[SlotExample], encoding: Encoding) -> SlotSet:
    """Slots in memory, with all their phrases, as of `load_slots` unlabelled."""
    chunk = _encode(some, _with_all(_readable(some, encoding)), encoding)
    return _slot_set(store.Records.of_chunk(chunk), "", encoding, dynamic_padding=True)


class _Readable(NamedTuple):
    """The tokens of some slots' phrases, and which of them a model can read."""
    ids: np.ndarray  # of all phrases, one after the other
    lengths: np.ndarray  # [phrases]
    starts: np.ndarray  # the first phrase of each slot, [slots]
    is_readable: np.ndarray  # whether the model can read a phrase, bool [phrases]
    phrase_kept: np.ndarray  # whether it is readable and its slot is kept, bool [phrases]
    slot_kept: np.ndarray  # bool [slots]


def _readable(some: Sequence[SlotExample], encoding: Encoding) -> _Readable:
    num_phrases = [len(slot.phrases) for slot in some]
    ids, lengths = encoding.tokenizer.encode_batch(
        [phrase for slot in some for phrase in slot.phrases])
    is_readable = (lengths > 0) & (lengths <= pairs.longest_phrase(encoding.max_seq_length))
    starts = np.cumsum(num_phrases) - num_phrases
    has_own = np.array([slot.num_fitting > 0 for slot in some])
    slot_kept = (~has_own | is_readable[starts]) & np.logical_or.reduceat(is_readable, starts)
    return _Readable(ids, lengths, starts, is_readable,
                     is_readable & np.repeat(slot_kept, num_phrases), slot_kept)


def _with_all(found: _Readable) -> _Readable:
    """All slots and phrases are kept, those that the model cannot read without tokens."""
    return found._replace(
        ids=found.ids[np.repeat(found.is_readable, found.lengths)],
        lengths=np.where(found.is_readable, found.lengths, 0),
        is_readable=np.ones_like(found.is_readable),
        phrase_kept=np.ones_like(found.phrase_kept), slot_kept=np.ones_like(found.slot_kept))


def unread(encoding: Encoding) -> str:
    """What is wrong with a phrase that the model cannot read."""
    return (f"it has no tokens, or more than {pairs.longest_phrase(encoding.max_seq_length)} with "
            f"--max_seq_length={encoding.max_seq_length}")


def _encode(some: Sequence[SlotExample], found: _Readable, encoding: Encoding) -> store.Chunk:
    kept = [slot for slot, keep in zip(some, found.slot_kept) if keep]
    per_slot = np.add.reduceat(
        found.phrase_kept.astype(np.int64), found.starts)[found.slot_kept]
    kept_lengths = found.lengths[found.phrase_kept]
    ends = np.cumsum(kept_lengths)
    slot_ends = np.cumsum(per_slot)
    flat_ends = np.concatenate([[0], ends])[np.concatenate([[0], slot_ends])]
    contexts = pairs.encode_contexts([slot.before for slot in kept],
                                     [slot.after for slot in kept], encoding)
    return {**contexts,
            "ids": (found.ids[np.repeat(found.phrase_kept, found.lengths)], np.diff(flat_ends)),
            "phrase_lengths": (kept_lengths, per_slot),
            "num_fitting": np.array([slot.num_fitting for slot in kept]),
            "category": phrases.to_chunk([slot.category for slot in kept])}


def _slot_set(records: store.Records, content: str, encoding: Encoding,
                  dynamic_padding: bool) -> SlotSet:
    num_phrases = records.lengths("phrase_lengths")
    phrase_lengths = records.flat("phrase_lengths")
    # The same token ids with one record for each phrase.
    candidates = store.Records(len(phrase_lengths), {"ids": records.flat("ids")},
                               {"ids": np.concatenate([[0], np.cumsum(phrase_lengths)])})
    slots = np.repeat(np.arange(len(records), dtype=np.int32), num_phrases)
    numbers = np.arange(len(candidates), dtype=np.int32)
    return SlotSet(
        pairs.Pairs(records, candidates, slots, numbers, encoding.tokenizer,
                    encoding.max_seq_length, dynamic_padding),
        num_phrases, records.scalars("num_fitting"), content)

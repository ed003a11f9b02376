"""Slots with candidate phrases, tokenized in a store, for training and ranking."""

import dataclasses
import functools
import os
import pathlib
from typing import Dict, Sequence, Union

import numpy as np

from encoder import label_types, task_json
from encoder.encoding import Encoding, open_or_tokenize
from engine import log
from engine.data import store, text_columns
from engine.data.batches import Source
from engine.data.text_files import OddRows
from engine.disk import files, provenance
from engine.errors import UserError
from rewriting import pairs, slot_files
from rewriting.slot_files import SlotExample
from tasks.data import TrainingSet

KIND = label_types.SingleLabel(("does not fit", "fits"), name=task_json.SCORER)
_SLOTS_AT_A_TIME = 4096


@dataclasses.dataclass(frozen=True)
class SlotSet:
    """The slots of a file with their phrases. Made by `load_slots`."""
    pairs: pairs.Pairs  # slot by slot, the fitting phrase first
    num_phrases: np.ndarray  # of each slot, [slots]
    num_fitting: np.ndarray  # fitting phrases of each slot, 0 or 1, [slots]
    content_hash: str
    path: str = ""  # of the file; "" of slots in memory

    def __len__(self) -> int:
        return len(self.pairs)

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
    def categories(self) -> np.ndarray:
        """The category of each slot, "" if it has none, [slots]."""
        rows = self.pairs.slots[self.starts]
        return np.array(text_columns.from_chunk(self.pairs.contexts.values("category", rows)))

    @property
    def is_readable(self) -> np.ndarray:
        """Whether the model can read the phrase of each pair, bool [pairs]."""
        return self.pairs.candidates.lengths("ids", self.pairs.phrases) > 0

    @property
    def is_ranked(self) -> np.ndarray:
        """Which slots have a phrase that fits and at least one other phrase, bool [slots]."""
        return (self.num_fitting > 0) & (self.num_phrases > 1)


class PairSet(TrainingSet):
    """Trains on the pairs of slots and phrases."""
    kind = KIND
    has_pairs = True

    def __init__(self, slot_set: SlotSet):
        self.slot_set = slot_set
        self.content_hash = slot_set.content_hash

    @property
    def store_name(self) -> str:
        return os.path.basename(self.slot_set.pairs.contexts.directory)

    def __len__(self) -> int:
        return len(self.slot_set.pairs)

    def targets(self, indices: Union[slice, np.ndarray]) -> np.ndarray:
        return self.slot_set.labels[indices]

    def source(self, *, with_labels: bool) -> Source:
        """Batches of pairs; with labels they have label_ids, int32 [b]."""
        source, labels = self.slot_set.pairs.source(), self.slot_set.labels

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**source.fetch(indices, length), "label_ids": labels[indices]}

        return source._replace(fetch=fetch) if with_labels else source


def load_slots(path: str, encoding: Encoding, store_dir: str, *, labelled: bool = True) -> SlotSet:
    """Opens the tokenized slots of a file, preparing them first if needed.

    A phrase that the model cannot read (too long, or without tokens) is skipped. If it is the
    one that fits, its slot is skipped.

    Args:
        labelled: False for predictions: the pairs are all phrases of the file, in its order,
            whether they fit or not, and whether the model can read them or not.
    """
    files.require_file(path, "the set")
    content = provenance.content_hash(path, store_dir)
    key = {"content": content, "format": os.path.splitext(path)[1], **encoding.facts(),
           "labelled": labelled}
    columns = {**pairs.context_columns(encoding),
               "ids": store.Column(encoding.id_dtype, ragged=True),
               "phrase_lengths": store.Column("int32", ragged=True),
               "num_fitting": store.Column("uint8", ragged=False),
               "category": text_columns.COLUMN}
    malformed = OddRows("")  # lines, when they are prepared
    read = functools.partial(slot_files.read_slots, path, labelled=labelled,
                             odd=None if labelled else malformed)
    records = open_or_tokenize(
        path, encoding, store_dir, f"slots-{pathlib.Path(path).stem}", key, columns, read,
        functools.partial(_encode, encoding=encoding), unit="slots", chunk_size=_SLOTS_AT_A_TIME)
    slots = dataclasses.replace(_slot_set(records, content, encoding), path=path)
    if labelled:
        return _readable(slots, encoding)
    odd = OddRows("phrases have no score, and empty lines in the predictions")
    for number in np.flatnonzero(~slots.is_readable) + 1:
        odd.add(f"{path}, phrase {number:,}: {unread(encoding)}, or its line is no slot"
                + (f": {malformed.first}" if malformed.first else ""))
    odd.report(len(slots.pairs))
    return slots


def encode_slots(examples: Sequence[SlotExample], encoding: Encoding) -> SlotSet:
    """Slots in memory, with all their phrases, as of `load_slots` without labels."""
    return _slot_set(store.Records.of_chunk(_encode(examples, encoding)), "", encoding)


def unread(encoding: Encoding) -> str:
    """Why the model cannot read a phrase."""
    return (f"it has no tokens, or more than {pairs.longest_phrase(encoding.max_seq_length)} with "
            f"--max_seq_length={encoding.max_seq_length}")


def _encode(examples: Sequence[SlotExample], encoding: Encoding) -> store.Chunk:
    """Tokenizes slots with all their phrases; those that the model cannot read have no tokens."""
    num_phrases = np.array([len(slot.phrases) for slot in examples])
    ids, lengths = encoding.encode([phrase for slot in examples for phrase in slot.phrases])
    is_short = lengths <= pairs.longest_phrase(encoding.max_seq_length)
    ids, lengths = ids[np.repeat(is_short, lengths)], np.where(is_short, lengths, 0)
    encoding.counts.add_rows(len(examples), num_pairs=len(examples))
    id_ends = np.append(0, np.cumsum(lengths))[np.append(0, np.cumsum(num_phrases))]
    contexts = pairs.encode_contexts([slot.before for slot in examples],
                                     [slot.after for slot in examples], encoding)
    return {**contexts, "ids": (ids, np.diff(id_ends)), "phrase_lengths": (lengths, num_phrases),
            "num_fitting": np.array([slot.num_fitting for slot in examples]),
            "category": text_columns.to_chunk([slot.category for slot in examples])}


def _slot_set(records: store.Records, content: str, encoding: Encoding) -> SlotSet:
    """All slots with all their phrases."""
    num_phrases, phrase_lengths = records.lengths("phrase_lengths"), records.flat("phrase_lengths")
    # The same token ids with one record for each phrase.
    candidates = store.Records.of_chunk({"ids": (records.flat("ids"), phrase_lengths)})
    slots = np.repeat(np.arange(len(records), dtype=np.int32), num_phrases)
    return SlotSet(
        pairs.Pairs(records, candidates, slots, np.arange(len(candidates), dtype=np.int32), encoding),
        num_phrases, records.scalars("num_fitting"), content)


def _readable(slots: SlotSet, encoding: Encoding) -> SlotSet:
    """The slots and phrases that the model can read; see `load_slots`."""
    is_kept = slots.is_readable & np.repeat(
        slots.is_readable[slots.starts] | (slots.num_fitting == 0), slots.num_phrases)
    if not is_kept.any():
        raise UserError(f"{slots.path}: no phrase is short enough for "
                        f"--max_seq_length={encoding.max_seq_length}")
    num_phrases = np.add.reduceat(is_kept.astype(np.int64), slots.starts)
    slot_kept = num_phrases > 0
    if not is_kept.all():
        log.warn(f"{slots.path}: {int((~slots.is_readable).sum()):,} phrases are left out, and "
                 f"with their own phrase {int((~slot_kept).sum()):,} slots: they have no tokens or "
                 f"more than {pairs.longest_phrase(encoding.max_seq_length)}, and the model reads "
                 f"a phrase twice within --max_seq_length={encoding.max_seq_length}")
    return dataclasses.replace(
        slots, pairs=slots.pairs.chosen(is_kept), num_phrases=num_phrases[slot_kept],
        num_fitting=slots.num_fitting[slot_kept])

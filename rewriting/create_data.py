"""Raw texts → slots with candidate phrases, in train, dev and test sets.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from typing import Callable, Dict, IO, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Set

import numpy as np
from absl import flags

from engine import log, settings
from engine.cli import command
from engine.data import store
from engine.data.text_files import LINE_CHARACTERS
from engine.disk import artifact, files
from engine.disk.artifact import Artifact
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.progress import Counter
from engine.settings import MAX_SEED, setting
from rewriting import bm25, slot_files, texts
from rewriting.slot_files import SlotExample
from rewriting.texts import MAX_WORDS, Slot, slots
from runs import column_finder

USAGE = """Makes training data for rewriting.run: each clause of a text with at least two clauses
becomes a slot, with clauses of other texts as negatives.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots

Texts are the lines of a .txt file, or a column of a .tsv, .csv or .jsonl file. Writes train, dev
and test sets as JSON lines, or in bert-ad's format (--format=bert-ad). From the train set it also
writes pool.txt, the clauses, and pairs.tsv, pairs of a clause and a text that contains it (label
1) or not (0), for pretraining (--objective=span). A text and its duplicates
are all in the same set."""

TRAIN, DEV, TEST = SPLITS = ("train", "dev", "test")
POOL, PAIRS = "pool.txt", "pairs.tsv"
_NOT_IN_BERT_AD = "bert-ad's lines cannot hold tabs, line ends or a “ right after a slot"
RANDOM, BM25 = NEGATIVES = ("random", "bm25")
# The most draws to find a clause that is not in the text itself and not drawn before.
_MOST_DRAWS = 100


@dataclasses.dataclass(frozen=True)
class SetSettings:
    """What the sets are made of; --negatives, a list, comes beside it."""
    topic = "Sets"
    format: str = setting("jsonl", "Format of the sets.", choices=sorted(slot_files.EXTENSIONS))
    num_negatives: int = setting(
        4, "Negatives for each slot of the train set.", between=(0, 10_000))
    num_eval_negatives: int = setting(
        19, "Negatives for each slot of the dev and test sets.", between=(0, 10_000))
    max_clause_words: int = setting(
        MAX_WORDS, "Most words (ideographs) of a clause that becomes a slot: models read phrases "
        "of half their --max_seq_length.", between=(2, MAX_WORDS))
    dev_fraction: float = setting(0.1, "Share of the texts in the dev set.", between=(0, 1))
    test_fraction: float = setting(0.1, "Share of the texts in the test set.", between=(0, 1))
    seed: int = setting(42, "Seed of the split and the negatives.", between=(0, MAX_SEED))

    def split_of(self, text: str) -> str:
        """The set that a text belongs to, which depends on the text and the seed alone."""
        digest = hashlib.sha256(f"{self.seed}\n{text}".encode("utf-8")).digest()
        draw = int.from_bytes(digest[:8], "big") / 2**64
        if draw < self.test_fraction:
            return TEST
        return DEV if draw < self.test_fraction + self.dev_fraction else TRAIN


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_multi_string("input_file", None, "A file of texts; may be given several times.",
                              flag_values=values)
    column_finder.define_flags(values, {"text": "the text"})
    flags.DEFINE_string("category_column", None, "The column of a text's category, its name or its "
                        "number, from 1: rewriting.run also reports the results by category.",
                        flag_values=values)
    flags.DEFINE_string("output_dir", None, "Where the sets are written.", flag_values=values)
    flags.DEFINE_list("negatives", RANDOM, "How negatives are chosen: "
                      f"{', '.join(NEGATIVES)}; several, separated by commas, take turns.",
                      flag_values=values)
    settings.define_flags(values, SetSettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Makes the sets, unless they are there, made from the same texts."""
    options = _options(values)
    output_dir = files.make_directory(settings.required(values, "output_dir"), "--output_dir")
    facts = {**settings.as_facts(values, ("input_file", "output_dir")), "--input_file": [
        Source(files.require_file(path, "--input_file")) for path in values.input_file]}
    outputs = {name: Artifact(os.path.join(output_dir, name), facts) for name in (
        *(split + slot_files.EXTENSIONS[options.format] for split in SPLITS), POOL, PAIRS)}
    for output in outputs.values():
        files.check_output(output.path, "--output_dir", values.input_file)
    with artifact.making(*outputs.values(), replaces=(artifact.OTHER, artifact.DAMAGED)) as is_needed:
        if is_needed:
            _create(values, options, outputs)


def _options(values: flags.FlagValues) -> SetSettings:
    if not values.input_file:
        raise UserError("--input_file is required")
    if not values.negatives or not set(values.negatives) <= set(NEGATIVES):
        raise UserError(f"--negatives={','.join(values.negatives)}: choose from "
                        f"{', '.join(NEGATIVES)}")
    options = settings.from_flags(values, SetSettings)
    if options.dev_fraction + options.test_fraction >= 1:
        raise UserError(f"--dev_fraction={options.dev_fraction} and --test_fraction="
                        f"{options.test_fraction} leave nothing to train on")
    return options


class _Text(NamedTuple):
    text: str
    category: str  # "" without one


def _create(values: flags.FlagValues, options: SetSettings, outputs: Mapping[str, Artifact]) -> None:
    texts_of: Dict[str, List[_Text]] = {split: [] for split in SPLITS}
    with Counter("Reading", unit="texts") as counter:
        for path in values.input_file:
            for text, category in texts.read_with_categories(
                    path, "--input_file", values.text_column, values.header,
                    values.category_column):
                texts_of[options.split_of(text)].append(_Text(text, category))
                counter.advance(1)
    with contextlib.ExitStack() as stack:  # all sets appear at its end
        def create(name: str) -> IO[str]:
            draft = stack.enter_context(outputs[name].written())
            return stack.enter_context(open(draft, "w", encoding="utf-8"))

        for number, split in enumerate(SPLITS):
            clauses = [slot.clause for text in texts_of[split]
                       for slot in slots(text.text, options.max_clause_words)]
            negatives = _Negatives(clauses, values.negatives, options.seed + number)
            counts = _write_set(options, split, texts_of[split], negatives, create)
            if split == TRAIN and not counts["slots"]:
                reason = f"; {_NOT_IN_BERT_AD}" if counts["left out"] else ""
                raise UserError(
                    f"--input_file={','.join(values.input_file)}: the train set would have no "
                    "slot: lower --dev_fraction and --test_fraction, or give more texts with two "
                    f"clauses of two to {options.max_clause_words:,} words "
                    f"(--max_clause_words){reason}")
            _report(outputs[split + slot_files.EXTENSIONS[options.format]].path,
                    len(texts_of[split]), counts, is_wanted=getattr(options, f"{split}_fraction", 1) > 0)


class _Negatives:
    """Draws clauses of other texts for slots.

    Args:
        clauses: those that may be drawn.
        kinds: some of NEGATIVES, which take turns among the negatives of a slot.
        seed: of the draws.
    """

    def __init__(self, clauses: Sequence[str], kinds: Sequence[str], seed: int):
        self._clauses, self._kinds = clauses, kinds
        self._random = np.random.RandomState(seed)
        self._index = None
        if BM25 in kinds and clauses:
            self._index = bm25.Index(store.Records.of_chunk(bm25.encode(clauses)))

    def draw(self, its_slots: Sequence[Slot], count: int) -> List[List[str]]:
        """For each slot of a text `count` negatives, or fewer if there are no more."""
        own, nearest = {slot.clause for slot in its_slots}, []
        if self._index and its_slots:  # by BM25, as when rewriting
            rows = self._index.top(
                its_slots[0].filled(its_slots[0].clause),
                4 * count + 2 * len(own),  # some will be the text's own, or duplicates
                np.ones(len(self._clauses), bool))
            nearest = [self._clauses[row] for row in rows]
        return [self._draw_for(own, count, iter(nearest)) for _ in its_slots]

    def _draw_for(self, own: Set[str], count: int, nearest: Iterator[str]) -> List[str]:
        drawn: List[str] = []
        for number in range(count):
            preferred = nearest if self._kinds[number % len(self._kinds)] == BM25 else ()
            drawn += itertools.islice((
                clause for clause in itertools.chain(preferred, self._any())
                if clause not in own and clause not in drawn), 1)
        return drawn

    def _any(self) -> Iterator[str]:
        """Random clauses, all of them if they are few."""
        size = len(self._clauses)
        for row in (self._random.permutation(size) if size <= _MOST_DRAWS else
                    self._random.randint(size, size=_MOST_DRAWS)):
            yield self._clauses[row]


def _write_set(options: SetSettings, split: str, its_texts: List[_Text], negatives: _Negatives,
               create: Callable[[str], IO[str]]) -> Dict[str, int]:
    """Writes the slots of a set; of the train set, also the files for other commands.

    Args:
        create: opens a new file of this name.

    Returns:
        How many "slots" are written, are "left out", and are "short" of negatives.
    """
    count = options.num_negatives if split == TRAIN else options.num_eval_negatives
    name = split + slot_files.EXTENSIONS[options.format]
    file, *others = map(create, [name, POOL, PAIRS] if split == TRAIN else [name])
    counts = dict.fromkeys(("slots", "left out", "short"), 0)
    with Counter(f"Writing {name}", unit="texts") as counter:
        for text, category in its_texts:
            its_slots = slots(text, options.max_clause_words)
            drawn = negatives.draw(its_slots, count)
            for slot, phrases in zip(its_slots, drawn):
                example = SlotExample(slot.before, slot.after, (slot.clause, *phrases), 1, category)
                is_written = slot_files.write_slot(example, options.format, file)
                counts["slots" if is_written else "left out"] += 1
                counts["short"] += len(phrases) < count
            if others:
                _write_for_others(its_slots, drawn, *others)
            counter.advance(1)
    return counts


def _write_for_others(its_slots: Sequence[Slot], its_negatives: Iterable[List[str]],
                      pool: IO[str], pairs: IO[str]) -> None:
    """Writes lines of pool.txt and of pairs.tsv: label, number of the slot, phrase, text."""
    for number, (slot, phrases) in enumerate(zip(its_slots, its_negatives)):
        text = slot.filled(slot.clause)
        if "\t" not in slot.clause:
            pool.write(f"{slot.clause}\n")
        for label, phrase in zip([1] + [0] * len(phrases), (slot.clause, *phrases)):
            if LINE_CHARACTERS.isdisjoint(phrase + text):
                pairs.write(f"{label}\t{number}\t{phrase}\t{text}\n")


def _report(path: str, num_texts: int, counts: Dict[str, int], is_wanted: bool) -> None:
    log.info(f"{path}: {counts['slots']:,} slots of {num_texts:,} texts")
    if is_wanted and not counts["slots"]:
        log.warn(f"{path} is empty: no text with two clauses fell to this set")
    if counts["short"]:
        log.warn(f"{path}: {counts['short']:,} slots have fewer negatives than asked for: the "
                 "set has too few different clauses")
    if counts["left out"]:
        log.warn(f"{path}: {counts['left out']:,} slots are left out: {_NOT_IN_BERT_AD}")


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

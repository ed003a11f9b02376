"""Raw texts → slots with candidate phrases, in train, dev and test sets.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots
"""

import collections
import contextlib
import hashlib
import itertools
import os
import re
from typing import Callable, Dict, IO, Iterator, List, Mapping, NamedTuple, Sequence, Set

import numpy as np
from absl import flags

from engine import log, settings
from engine.cli import command
from engine.data import store
from engine.disk import files, provenance
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.progress import Counter
from rewriting import bm25, slot_files, texts
from rewriting.slot_files import SlotExample
from rewriting.texts import MAX_WORDS, Slot, slots

USAGE = """Makes training data for rewriting.run: each clause of a text with at least two clauses
becomes a slot, with clauses of other texts as negatives.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots

Texts are the lines of a .txt file, or a column of a .tsv, .csv or .jsonl file. Writes train, dev
and test sets as JSON lines, or in bert-ad's format (--format=bert-ad). From the train set it also
writes pool.txt, the clauses, and pairs.tsv, pairs of a clause and a text that contains it (label
1) or not (0), for pretraining (--objective=span --input_format=pairs). A text and its duplicates
are all in the same set."""

TRAIN, DEV, TEST = SPLITS = ("train", "dev", "test")
POOL, PAIRS = "pool.txt", "pairs.tsv"
_NOT_IN_BERT_AD = "bert-ad's lines cannot hold tabs, line ends or a “ right after a slot"
_FIELD_ENDS = re.compile("[\t\r\n]")
RANDOM, BM25 = NEGATIVES = ("random", "bm25")
# The most draws to find a clause that is not in the text itself and not drawn before.
_MOST_DRAWS = 100


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_multi_string("input_file", None, "A file of texts; may be given several times.",
                              flag_values=values)
    texts.define_flags(values)
    flags.DEFINE_string("category_column", None, "The column of a text's category, its name or its "
                        "number, from 1: rewriting.run also reports the results by category.",
                        flag_values=values)
    flags.DEFINE_string("output_dir", None, "Where the sets are written.", flag_values=values)
    flags.DEFINE_enum("format", "jsonl", sorted(slot_files.EXTENSIONS), "Format of the sets.",
                      flag_values=values)
    flags.DEFINE_list("negatives", RANDOM, "How negatives are chosen: "
                      f"{', '.join(NEGATIVES)}; several, separated by commas, take turns.",
                      flag_values=values)
    flags.DEFINE_integer("num_negatives", 4, "Negatives for each slot of the train set.",
                         flag_values=values)
    flags.DEFINE_integer("num_eval_negatives", 19, "Negatives for each slot of the dev and test "
                         "sets.",
                         flag_values=values)
    flags.DEFINE_integer("max_clause_words", MAX_WORDS, "Most words (ideographs) of a clause that "
                         "becomes a slot: models read phrases of half their --max_seq_length.",
                         flag_values=values)
    flags.DEFINE_float("dev_fraction", 0.1, "Share of the texts in the dev set.",
                       flag_values=values)
    flags.DEFINE_float("test_fraction", 0.1, "Share of the texts in the test set.",
                       flag_values=values)
    flags.DEFINE_integer("seed", 42, "Seed of the split and the negatives.", flag_values=values)
    return values


def main(values: flags.FlagValues) -> None:
    """Makes the sets, unless they are there, made from the same texts."""
    _check(values)
    output_dir = files.make_directory(settings.required(values, "output_dir"), "--output_dir")
    outputs = [os.path.join(output_dir, name) for name in (
        *(split + slot_files.EXTENSIONS[values.format] for split in SPLITS), POOL, PAIRS)]
    facts = {**settings.as_facts(values, ("input_file", "output_dir")), "--input_file": [
        Source(files.require_file(path, "--input_file")) for path in values.input_file]}
    with files.written_alone(*outputs):
        recorded = [files.read_record(f"{path}.json", "the record", {})
                    for path in outputs if os.path.exists(f"{path}.json")]
        if len(recorded) == len(outputs) and all(
                not provenance.difference(record, facts) and provenance.is_intact(path, record)
                for path, record in zip(outputs, recorded)):
            log.info(f"{', '.join(outputs)} are whole: nothing is left to do")
            return
        facts = provenance.as_json(facts)
        _create(values, output_dir)
        for path in outputs:
            files.write_json(f"{path}.json", {"facts": facts, "content": Source(path).fact()})


def _create(values: flags.FlagValues, output_dir: str) -> None:
    texts_of: Dict[str, List[_Text]] = {split: [] for split in SPLITS}
    with Counter("Reading", unit="texts") as counter:
        for text, category in itertools.chain.from_iterable(
                texts.read_with_categories(path, "--input_file", values.text_column, values.header,
                                           values.category_column)
                for path in values.input_file):
            texts_of[_split_of(text, values)].append(_Text(text, category))
            counter.advance(1)
    with contextlib.ExitStack() as stack:  # all sets appear at its end
        def create(name: str) -> IO[str]:
            return stack.enter_context(files.output(os.path.join(output_dir, name)))

        for number, split in enumerate(SPLITS):
            _write_set(values, split, texts_of[split], values.seed + number, create)


def _check(values: flags.FlagValues) -> None:
    if not values.input_file:
        raise UserError("--input_file is required")
    if not values.negatives or not set(values.negatives) <= set(NEGATIVES):
        raise UserError(f"--negatives={','.join(values.negatives)}: choose from "
                        f"{', '.join(NEGATIVES)}")
    dev, test = (settings.in_range(values, f"{name}_fraction", 0, 1) for name in (DEV, TEST))
    if dev + test >= 1:
        raise UserError(f"--dev_fraction={dev} and --test_fraction={test} leave nothing to train "
                        "on")
    for name in ("num_negatives", "num_eval_negatives"):
        settings.in_range(values, name, 0, 10_000)
    settings.in_range(values, "max_clause_words", 2, MAX_WORDS)
    settings.in_range(values, "seed", 0, 2**31 - 1)


class _Text(NamedTuple):
    text: str
    category: str  # "" without one


def _split_of(text: str, values: flags.FlagValues) -> str:
    """The set that a text belongs to, which depends on the text and the seed alone."""
    digest = hashlib.sha256(f"{values.seed}\n{text}".encode("utf-8")).digest()
    draw = int.from_bytes(digest[:8], "big") / 2**64
    if draw < values.test_fraction:
        return TEST
    return DEV if draw < values.test_fraction + values.dev_fraction else TRAIN


class _Negatives:
    """Draws clauses of other texts for slots.

    Args:
        clauses: those that may be drawn.
        kinds: some of NEGATIVES, which take turns among the negatives of a slot.
        seed: of the draws.
    """

    def __init__(self, clauses: Sequence[str], kinds: Sequence[str], seed: int):
        self._clauses = clauses
        self._kinds = kinds
        self._random = np.random.RandomState(seed)
        self._index = None
        if BM25 in kinds and clauses:
            self._index = bm25.Index(store.Records.of_chunk(bm25.encode(clauses)))

    def draw(self, its_slots: Sequence[Slot], count: int) -> List[List[str]]:
        """For each slot of a text `count` negatives, or fewer if there are no more."""
        own = {slot.clause for slot in its_slots}
        nearest: List[str] = []
        if self._index and its_slots:  # by BM25, as when rewriting
            matches = self._index.top(
                its_slots[0].filled(its_slots[0].clause),
                4 * count + 2 * len(own),  # some will be the text's own, or duplicates
                np.ones(len(self._clauses), bool))
            nearest = [self._clauses[row] for row in matches.rows]
        return [self._draw_for(own, count, iter(nearest)) for _ in its_slots]

    def _draw_for(self, own: Set[str], count: int, nearest: Iterator[str]) -> List[str]:
        drawn: List[str] = []
        for number in range(count):
            preferred = nearest if self._kinds[number % len(self._kinds)] == BM25 else ()
            found = next((clause for clause in itertools.chain(preferred, self._any())
                          if clause not in own and clause not in drawn), None)
            if found is not None:
                drawn.append(found)
        return drawn

    def _any(self) -> Iterator[str]:
        """Random clauses, all of them if they are few."""
        size = len(self._clauses)
        for row in (self._random.permutation(size) if size <= _MOST_DRAWS else
                    self._random.randint(size, size=_MOST_DRAWS)):
            yield self._clauses[row]


def _write_set(values: flags.FlagValues, split: str, its_texts: List[_Text], seed: int,
               create: Callable[[str], IO[str]]) -> None:
    """Writes the slots of a set; of the train set, also the files for other commands.

    Args:
        create: opens a new file of this name.
    """
    count = values.num_negatives if split == TRAIN else values.num_eval_negatives
    negatives = _Negatives(
        [slot.clause for text in its_texts for slot in slots(text.text, values.max_clause_words)],
        values.negatives, seed)
    name = split + slot_files.EXTENSIONS[values.format]
    file, *others = map(create, [name, POOL, PAIRS] if split == TRAIN else [name])
    counts: Dict[str, int] = collections.Counter()
    with Counter(f"Writing {name}", unit="texts") as counter:
        for text in its_texts:
            its_slots = slots(text.text, values.max_clause_words)
            drawn = negatives.draw(its_slots, count)
            counts.update(_write_slots(its_slots, drawn, count, text.category, values.format, file))
            if others:
                _write_for_others(its_slots, drawn, *others)
            counter.advance(1)
    if split == TRAIN and not counts["slots"]:
        reason = f"; {_NOT_IN_BERT_AD}" if counts["left out"] else ""
        raise UserError(
            f"--input_file={','.join(values.input_file)}: the train set would have no slot: "
            "lower --dev_fraction and --test_fraction, or give more texts with two clauses of "
            f"two to {values.max_clause_words:,} words (--max_clause_words){reason}")
    _report(os.path.join(values.output_dir, name), len(its_texts), counts)


def _write_slots(its_slots: Sequence[Slot], drawn: Sequence[List[str]], count: int, category: str,
                 form: str, file: IO[str]) -> Dict[str, int]:
    """Writes the slots of a text; returns what `_report` counts."""
    examples = [SlotExample(slot.before, slot.after, (slot.clause, *phrases), 1, category)
                for slot, phrases in zip(its_slots, drawn)]
    num_written = sum(slot_files.write_slot(example, form, file) for example in examples)
    return {"slots": num_written, "left out": len(examples) - num_written,
            "short": sum(len(phrases) < count for phrases in drawn)}


def _report(path: str, num_texts: int, counts: Mapping[str, int]) -> None:
    log.info(f"{path}: {counts['slots']:,} slots of {num_texts:,} texts")
    if not counts["slots"]:
        log.warn(f"{path} is empty: no text with two clauses fell to this set")
    if counts["short"]:
        log.warn(f"{path}: {counts['short']:,} slots have fewer negatives than asked for: the "
                 "set has too few different clauses")
    if counts["left out"]:
        log.warn(f"{path}: {counts['left out']:,} slots are left out: {_NOT_IN_BERT_AD}")


def _write_for_others(its_slots: Sequence[Slot], its_negatives: Sequence[List[str]],
                      pool: IO[str], pairs: IO[str]) -> None:
    """Writes lines of pool.txt and of pairs.tsv: label, number of the slot, phrase, text."""
    for number, (slot, phrases) in enumerate(zip(its_slots, its_negatives)):
        text = slot.filled(slot.clause)
        if "\t" not in slot.clause:
            pool.write(f"{slot.clause}\n")
        for label, phrase in zip([1] + [0] * len(phrases), (slot.clause, *phrases)):
            if not _FIELD_ENDS.search(phrase + text):
                pairs.write(f"{label}\t{number}\t{phrase}\t{text}\n")


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Raw texts → slots with candidate phrases, in train, dev and test sets.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots
"""

import contextlib
import hashlib
import itertools
import os
import re
from typing import Dict, IO, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
from absl import flags

from engine import log, settings
from engine.cli import command
from engine.data import store
from engine.data.chunks import in_chunks
from engine.disk import files, scratch
from engine.errors import UserError
from engine.progress import Counter
from rewriting import bm25, negatives, slot_files, texts
from rewriting.clauses import Slot, slots
from rewriting.slot_files import SlotExample

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
_TEXTS_AT_A_TIME = 512


class Options(NamedTuple):
    """The flags, checked."""
    input_files: Sequence[str]
    text_column: Optional[str]
    category_column: Optional[str]
    header: Optional[bool]
    output_dir: str
    format: str
    kinds: Sequence[str]  # of negatives
    num_negatives: Dict[str, int]  # by split
    dev_fraction: float
    test_fraction: float
    min_words: int
    max_words: int
    seed: int


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
    flags.DEFINE_list("negatives", negatives.RANDOM, "How negatives are chosen: "
                      f"{', '.join(negatives.KINDS)}; several, separated by commas, take turns.",
                      flag_values=values)
    flags.DEFINE_integer("num_negatives", 4, "Negatives for each slot of the train set.",
                         flag_values=values)
    flags.DEFINE_integer("num_eval_negatives", 19, "Negatives for each slot of the dev and test "
                         "sets.",
                         flag_values=values)
    flags.DEFINE_float("dev_fraction", 0.1, "Share of the texts in the dev set.",
                       flag_values=values)
    flags.DEFINE_float("test_fraction", 0.1, "Share of the texts in the test set.",
                       flag_values=values)
    flags.DEFINE_integer("min_clause_words", 2, "Fewest words (ideographs) of a clause that "
                         "becomes a slot.",
                         flag_values=values)
    flags.DEFINE_integer("max_clause_words", 10_000, "Most words (ideographs) of a clause that "
                         "becomes a slot; a model reads phrases of half its --max_seq_length in "
                         "tokens.", flag_values=values)
    flags.DEFINE_integer("seed", 42, "Seed of the split and the negatives.", flag_values=values)
    return values


def main(values: flags.FlagValues) -> None:
    """Reads the texts twice: first collects their clauses, then writes their slots."""
    options = _options(values)
    with scratch.folder(options.output_dir) as folder:
        clauses = _collect_clauses(options, folder)
        if not len(clauses):
            raise UserError(f"--input_file={','.join(options.input_files)}: no text has two "
                            f"clauses of at least {options.min_words} words")
        _write_sets(options, clauses)


def _options(values: flags.FlagValues) -> Options:
    if not values.input_file:
        raise UserError("--input_file is required")
    unknown = [kind for kind in values.negatives if kind not in negatives.KINDS]
    if unknown or not values.negatives:
        raise UserError(f"--negatives={','.join(values.negatives)}: choose from "
                        f"{', '.join(negatives.KINDS)}")
    dev, test = (settings.in_range(values, f"{name}_fraction", 0, 1) for name in (DEV, TEST))
    if dev + test >= 1:
        raise UserError(f"--dev_fraction={dev} and --test_fraction={test} leave nothing to train "
                        "on")
    held_out = settings.in_range(values, "num_eval_negatives", 0, 10_000)
    return Options(
        values.input_file, values.text_column, values.category_column, values.header,
        files.make_directory(settings.required(values, "output_dir"), "--output_dir"),
        values.format, values.negatives,
        {TRAIN: settings.in_range(values, "num_negatives", 0, 10_000),
         DEV: held_out, TEST: held_out},
        dev, test, settings.positive(values, "min_clause_words"),
        settings.in_range(values, "max_clause_words", values.min_clause_words, 10_000),
        settings.in_range(values, "seed", 0, 2**31 - 1))


def split_of(text: str, options: Options) -> str:
    """The set that a text belongs to, which depends on the text and the seed alone."""
    digest = hashlib.sha256(f"{options.seed}\n{text}".encode("utf-8")).digest()
    draw = int.from_bytes(digest[:8], "big") / 2**64
    if draw < options.test_fraction:
        return TEST
    return DEV if draw < options.test_fraction + options.dev_fraction else TRAIN


class _Text(NamedTuple):
    split: str
    category: str  # "" without one
    slots: List[Slot]  # none if the text has one clause


def _texts_with_slots(options: Options, description: str) -> Iterator[List[_Text]]:
    """Chunks of texts."""
    read = itertools.chain.from_iterable(
        texts.read_with_categories(path, "--input_file", options.text_column, options.header,
                                   options.category_column)
        for path in options.input_files)
    with Counter(description, unit="texts") as counter:
        for some in in_chunks(read, _TEXTS_AT_A_TIME):
            yield [_Text(split_of(text, options), category,
                         slots(text, options.min_words, options.max_words)) for text, category in some]
            counter.advance(len(some))


def _collect_clauses(options: Options, folder: str) -> store.Store:
    columns = {**negatives.COLUMNS, "split": store.Column("uint8", ragged=False)}
    if negatives.BM25 in options.kinds:
        columns.update(bm25.COLUMNS)

    def chunks() -> Iterator[store.Chunk]:
        for some in _texts_with_slots(options, "Collecting clauses"):
            found = [(slot.clause, SPLITS.index(text.split))
                     for text in some for slot in text.slots]
            if found:
                clauses, splits = zip(*found)
                yield {**negatives.encode(clauses, options.kinds), "split": np.array(splits)}

    return store.open_or_build(folder, "clauses", {}, columns, chunks)


def _write_sets(options: Options, clauses: store.Store) -> None:
    split_numbers = clauses.scalars("split")
    index = bm25.Index(clauses) if negatives.BM25 in options.kinds else None
    draws = {split: negatives.Negatives(clauses, np.flatnonzero(split_numbers == number),
                                        options.kinds, index, options.seed + number)
             for number, split in enumerate(SPLITS)}
    counts = {split: _Counts() for split in SPLITS}
    with contextlib.ExitStack() as stack:
        out = {split: _open(stack, options, split + slot_files.EXTENSIONS[options.format])
               for split in SPLITS}
        pool, pairs = (_open(stack, options, name) for name in (POOL, PAIRS))
        for some in _texts_with_slots(options, "Writing slots"):
            for split in SPLITS:
                of_split = [text for text in some if text.split == split]
                drawn = draws[split].draw([text.slots for text in of_split],
                                          options.num_negatives[split])
                for text, its_negatives in zip(of_split, drawn):
                    counts[split].add(options, text, its_negatives, out[split])
                    if split == TRAIN:
                        _write_for_others(text.slots, its_negatives, pool, pairs)
        if counts[TRAIN].num_left_out and not counts[TRAIN].num_slots:
            raise UserError(f"--format=bert-ad can hold none of the train set's slots: "
                            f"{_NOT_IN_BERT_AD}; leave the flag out")
        if not counts[TRAIN].num_slots:
            raise UserError("no text with two clauses fell to the train set; lower --dev_fraction "
                            "and --test_fraction, or give more texts")
    for split in SPLITS:
        counts[split].report(options, split)


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


def _open(stack: contextlib.ExitStack, options: Options, name: str) -> IO[str]:
    path = stack.enter_context(files.atomic_path(os.path.join(options.output_dir, name)))
    return stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))


class _Counts:
    """Counts what is written to a set, for the report."""

    def __init__(self):
        self.num_texts = self.num_without = 0
        self.num_slots = self.num_short = self.num_left_out = 0

    def add(self, options: Options, text: _Text, its_negatives: Sequence[List[str]],
            file: IO[str]) -> None:
        self.num_texts += 1
        self.num_without += not text.slots
        for slot, phrases in zip(text.slots, its_negatives):
            example = SlotExample.of_slot(slot, phrases)._replace(category=text.category)
            if not slot_files.write_slot(example, options.format, file):
                self.num_left_out += 1
                continue
            self.num_slots += 1
            self.num_short += len(phrases) < options.num_negatives[text.split]

    def report(self, options: Options, split: str) -> None:
        path = os.path.join(options.output_dir, split + slot_files.EXTENSIONS[options.format])
        log.info(f"{path}: {self.num_slots:,} slots of {self.num_texts:,} texts")
        if self.num_without:
            log.info(f"  {self.num_without:,} of the texts have no second clause of at least "
                     f"{options.min_words} words, and so no slot")
        if not self.num_slots:
            log.warn(f"{path} is empty: no text with two clauses fell to this set")
        if self.num_short:
            log.warn(f"{path}: {self.num_short:,} slots have fewer negatives than asked for: the "
                     "set has too few different clauses")
        if self.num_left_out:
            log.warn(f"{path}: {self.num_left_out:,} slots are left out: {_NOT_IN_BERT_AD}")


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

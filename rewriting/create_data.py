"""Raw texts → slots with candidate phrases, in train, dev and test sets.

  python -m rewriting.create_data --input_file=texts.txt --output_dir=slots
"""

import collections
import contextlib
import hashlib
import itertools
import os
import re
from typing import Dict, IO, Iterator, List, Mapping, NamedTuple, Sequence

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
_TEXTS_AT_A_TIME = 512


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
    """Reads the texts twice: first collects their clauses, then writes their slots."""
    _check(values)
    output_dir = files.make_directory(settings.required(values, "output_dir"), "--output_dir")
    with scratch.folder(output_dir) as folder:
        clauses = _collect_clauses(values, folder)
        if not len(clauses):
            raise UserError(f"--input_file={','.join(values.input_file)}: no text has two "
                            f"clauses of two to {values.max_clause_words:,} words "
                            "(--max_clause_words)")
        _write_sets(values, clauses)


def _check(values: flags.FlagValues) -> None:
    if not values.input_file:
        raise UserError("--input_file is required")
    if not values.negatives or not set(values.negatives) <= set(negatives.KINDS):
        raise UserError(f"--negatives={','.join(values.negatives)}: choose from "
                        f"{', '.join(negatives.KINDS)}")
    dev, test = (settings.in_range(values, f"{name}_fraction", 0, 1) for name in (DEV, TEST))
    if dev + test >= 1:
        raise UserError(f"--dev_fraction={dev} and --test_fraction={test} leave nothing to train "
                        "on")
    for name in ("num_negatives", "num_eval_negatives"):
        settings.in_range(values, name, 0, 10_000)
    settings.in_range(values, "max_clause_words", 2, MAX_WORDS)
    settings.in_range(values, "seed", 0, 2**31 - 1)


class _Text(NamedTuple):
    split: str
    category: str  # "" without one
    slots: List[Slot]  # none if the text has one clause


def _texts_with_slots(values: flags.FlagValues, description: str) -> Iterator[List[_Text]]:
    """Chunks of texts."""
    read = itertools.chain.from_iterable(
        texts.read_with_categories(path, "--input_file", values.text_column, values.header,
                                   values.category_column)
        for path in values.input_file)
    with Counter(description, unit="texts") as counter:
        for some in in_chunks(read, _TEXTS_AT_A_TIME):
            yield [_Text(_split_of(text, values), category, slots(text, values.max_clause_words))
                   for text, category in some]
            counter.advance(len(some))


def _split_of(text: str, values: flags.FlagValues) -> str:
    """The set that a text belongs to, which depends on the text and the seed alone."""
    digest = hashlib.sha256(f"{values.seed}\n{text}".encode("utf-8")).digest()
    draw = int.from_bytes(digest[:8], "big") / 2**64
    if draw < values.test_fraction:
        return TEST
    return DEV if draw < values.test_fraction + values.dev_fraction else TRAIN


def _collect_clauses(values: flags.FlagValues, folder: str) -> store.Store:
    columns = {**negatives.columns_for(values.negatives),
               "split": store.Column("uint8", ragged=False)}

    def chunks() -> Iterator[store.Chunk]:
        for some in _texts_with_slots(values, "Collecting clauses"):
            found = [(slot.clause, SPLITS.index(text.split))
                     for text in some for slot in text.slots]
            if found:
                clauses, splits = zip(*found)
                yield {**negatives.encode(clauses, values.negatives), "split": np.array(splits)}

    return store.open_or_build(folder, "clauses", {}, columns, chunks)


def _write_sets(values: flags.FlagValues, clauses: store.Store) -> None:
    split_numbers = clauses.scalars("split")
    index = bm25.Index(clauses) if negatives.BM25 in values.negatives else None
    draws = {split: negatives.Negatives(clauses, np.flatnonzero(split_numbers == number),
                                        values.negatives, index, values.seed + number)
             for number, split in enumerate(SPLITS)}
    counts = {split: collections.Counter() for split in SPLITS}
    names = {split: split + slot_files.EXTENSIONS[values.format] for split in SPLITS}
    with contextlib.ExitStack() as stack:
        out = {name: stack.enter_context(files.output(os.path.join(values.output_dir, name)))
               for name in (*names.values(), POOL, PAIRS)}
        for some in _texts_with_slots(values, "Writing slots"):
            for split in SPLITS:
                of_split = [text for text in some if text.split == split]
                count = values.num_negatives if split == TRAIN else values.num_eval_negatives
                drawn = draws[split].draw([text.slots for text in of_split], count)
                for text, its_negatives in zip(of_split, drawn):
                    counts[split].update(_write_slots(text, its_negatives, count, values.format,
                                                      out[names[split]]))
                    if split == TRAIN:
                        _write_for_others(text.slots, its_negatives, out[POOL], out[PAIRS])
        if not counts[TRAIN]["slots"]:
            reason = f"; {_NOT_IN_BERT_AD}" if counts[TRAIN]["left out"] else ""
            raise UserError("the train set would have no slot: lower --dev_fraction and "
                            f"--test_fraction, or give more texts{reason}")
    for split in SPLITS:
        _report(os.path.join(values.output_dir, names[split]), counts[split])


def _write_slots(text: _Text, its_negatives: Sequence[List[str]], count: int, form: str,
                 file: IO[str]) -> Dict[str, int]:
    """Writes the slots of a text; returns what `_report` counts."""
    examples = [SlotExample(slot.before, slot.after, (slot.clause, *phrases), 1, text.category)
                for slot, phrases in zip(text.slots, its_negatives)]
    num_written = sum(slot_files.write_slot(example, form, file) for example in examples)
    return {"texts": 1, "slots": num_written, "left out": len(examples) - num_written,
            "short": sum(len(phrases) < count for phrases in its_negatives)}


def _report(path: str, counts: Mapping[str, int]) -> None:
    log.info(f"{path}: {counts['slots']:,} slots of {counts['texts']:,} texts")
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

"""Predicts with a trained model that reads texts: a line for each text, in their order.

  python -m runs.predict --output_dir=out < texts.txt > predictions.tsv
"""

import itertools
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from absl import flags

from engine import settings
from engine.cli import command, device_flags, shards
from engine.data import text_files
from engine.data.text_files import OddRows, attempt
from engine.disk import parts
from engine.disk.parts import ArrivingLines
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.inference import PredictionSettings
from runs import columns, kinds
from runs.capability import AnyResult, Encoded, Result
from runs.rows import UNREAD, Example, read_split
from runs.stream import Input, Stream, Texts, run

USAGE = """Predicts with a trained model that reads texts, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m runs.predict --output_dir=out < texts.txt > predictions.tsv
  python -m runs.predict --output_dir=out --input_file=texts.csv --output_file=predictions.jsonl

On standard input, each line is a text, or two texts separated by a tab if the model takes pairs:
to answer questions, the question and the context; to score phrases, the phrase and a text with
[MASK] in its place. A line that arrives alone on a pipe is answered at once.
Input files are .tsv, .txt (tab-separated), .csv or .jsonl; --text_column names their column of
texts. The output has a line for each text, in the order of the input: TSV with a header line
(the label, then the probability of each label; the answer and its probability), or JSON lines.
A text that cannot be read has a line of empty columns, or {"error": why}."""


_LEAST_CHARACTERS = 512  # that a text counts for


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("output_dir", "The --output_dir of the training, or the export."),
            ("input_file", "File of texts, by default standard input."),
            ("output_file", "File for the predictions, .tsv or .jsonl, by default standard output."),
            ("text_column", "The column of the text: its name, or its number from 1; detected by "
             "default."),
            ("text_pair_column", "The column of the second text; detected by default.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_enum("format", None, ["tsv", "jsonl"], "Format of the output, by default that of "
                      "the extension of --output_file, or else tsv.", flag_values=values)
    flags.DEFINE_bool("header", None, "Whether the first line of --input_file names the columns; "
                      "detected by default.", flag_values=values)
    shards.define_flags(values)
    shards.define_skip_flag(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


class Predictions(Stream):
    """A trained model that reads texts, and its predictions as lines."""
    title, unit, become, unread = "Predicting", "texts", "have no prediction", UNREAD
    # Texts are not counted but measured, since what is predicted for a long one is long, too.
    chunk_size = 1 << 20  # characters

    def __init__(self, values: flags.FlagValues):
        trained, self.reader = kinds.open_reader(settings.required(values, "output_dir"))
        super().__init__(self.reader.forward, trained.checkpoint, values)

    def size_of(self, row: Example) -> int:
        """In characters."""
        return max(_LEAST_CHARACTERS, len(row.text_a) + len(row.text_b or ""))

    def encode(self, rows: List[Example]) -> Encoded:
        return self.reader.encode(rows)

    def model_facts(self) -> Dict[str, Any]:
        return {"models": [Source(f"{self.checkpoint.path}.index")]}

    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        """Texts or pairs, and lines of TSV or JSON."""
        form = text_files.output_format(values.output_file, values.format)
        examples, are_pairs = (
            read_arriving(source, self.reader.takes_pairs, odd) if isinstance(source, ArrivingLines)
            else self._rows_of(source, values, odd))
        names = are_pairs and self.reader.pair_columns or self.reader.columns
        return Texts(
            examples, lambda number, example, result: _line(form, names, result),
            "\t".join(names) + "\n" if form == "tsv" else "",
            report=lambda: self.reader.report("the input"))

    def _rows_of(self, source: text_files.Path, values: flags.FlagValues, odd: OddRows
                 ) -> Tuple[Iterator[Example], bool]:
        """The texts of a file, and whether they are pairs."""
        part = source if isinstance(source, parts.Part) else None
        table = columns.read_head(os.fspath(source), values.header,
                                  columns.names_of(self.reader.trained_columns))
        if odd.skips_lines and table.format == "csv":
            raise UserError(f"--skip_bad_lines: {source} is CSV, whose rows may have several lines; convert "
                            "it to UTF-8, for example with iconv")
        roles = columns.find(
            table, columns.Roles(values.text_column, values.text_pair_column), labelled=False,
            takes_pairs=self.reader.takes_pairs, trained=self.reader.trained_columns)
        return (read_split(columns.split_of(table, roles), "", odd=odd, part=part),
                bool(roles.text_pair))


def read_arriving(source: ArrivingLines, takes_pairs: Optional[bool], odd: OddRows
                  ) -> Tuple[Iterator[Example], bool]:
    """The texts of lines, and whether they are pairs; without `takes_pairs` the first line says it."""
    lines = text_files.lines_of(source, "standard input", odd)
    first = list(itertools.islice(lines, 1))
    is_guess = takes_pairs is None
    if is_guess:
        takes_pairs = any("\t" in (line or "") for _, line in first)
    return (UNREAD if line is None
            else attempt(odd, UNREAD, _example_of_line, line_number, line, takes_pairs, is_guess)
            for line_number, line in itertools.chain(first, lines)), takes_pairs


def _example_of_line(line_number: int, line: str, takes_pairs: bool, is_guess: bool) -> Example:
    if is_guess and not takes_pairs and "\t" in line:
        raise UserError(f"standard input, line {line_number}: this line has a tab between two texts, and "
                        "the first line is a single text; pairs must begin with a pair")
    if not takes_pairs:
        return Example(line, None, None)
    text_a, tab, text_b = line.partition("\t")
    if not tab:
        raise UserError(f"standard input, line {line_number}: the model takes pairs of texts, or the "
                        "first line is one: two texts with a tab between, and this line has no tab")
    return Example(text_a, text_b, None)


def _line(form: str, names: Sequence[str], result: AnyResult) -> str:
    """The line of a result; `names` are those of its fields."""
    if isinstance(result, str):
        result = Result([""] * len(names), {"error": result})
    return ("\t".join(result.fields) if form == "tsv" else json.dumps(result.entry, ensure_ascii=False)) + "\n"


def open_model(values: flags.FlagValues) -> Predictions:
    """The model that the flags name."""
    return Predictions(values)


def main(values: flags.FlagValues) -> None:
    """Predicts for all texts of the input."""
    with open_model(values) as model:
        run(values, model)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

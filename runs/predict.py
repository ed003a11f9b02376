"""Predicts with a trained model that reads texts: a line for each text, in their order.

  python -m runs.predict --output_dir=out < texts.txt > predictions.tsv
"""

import functools
import itertools
import json
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from absl import flags

from engine import log, settings
from engine.cli import command, device_flags, shards
from engine.data import text_files
from engine.data.text_files import OddRows, Unread, attempt
from engine.disk.parts import ArrivingLines
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.progress import counted
from runs import column_finder, columns, kinds
from runs.capability import Encoded, Result, Takes
from runs.rows import Example
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
            ("output_file", "File for the predictions, .tsv or .jsonl, by default standard output.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_enum("format", None, ["tsv", "jsonl"], "Format of the output, by default that of "
                      "the extension of --output_file, or else tsv.", flag_values=values)
    column_finder.define_flags(values, {"text": "the text", "text_pair": "the second text"})
    shards.define_flags(values)
    shards.define_skip_flag(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


class Predictions(Stream):
    """A trained model that reads texts, and its predictions as lines."""
    title, unit, become = "Predicting", "texts", "have no prediction"
    # Texts are not counted but measured, since what is predicted for a long one is long, too.
    chunk_size = 1 << 20  # characters

    def __init__(self, values: flags.FlagValues):
        trained, self.reader = kinds.open_reader(settings.required(values, "output_dir"))
        super().__init__(self.reader.forward, trained.checkpoint, values)

    def size_of(self, row: Example) -> int:
        """In characters."""
        return max(_LEAST_CHARACTERS, sum(map(len, row.texts)))

    def encode(self, rows: List[Example]) -> Encoded:
        return self.reader.encode(rows)

    def model_facts(self) -> Dict[str, Any]:
        return {"models": [Source(self.checkpoint.index_file)]}

    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        """Examples, and lines of TSV or JSON."""
        form = text_files.output_format(values.output_file, values.format)
        examples, count = (read_arriving(source, self.reader.takes, odd) if isinstance(source, ArrivingLines)
                           else self._rows_of(source, values, odd))
        names = count > 1 and self.reader.pair_columns or self.reader.columns
        return Texts(
            examples, lambda number, example, result: _line(form, names, result),
            "\t".join(names) + "\n" if form == "tsv" else "",
            report=lambda: self.reader.report("the input"))

    def _rows_of(self, source: text_files.Path, values: flags.FlagValues, odd: OddRows
                 ) -> Tuple[Iterator[Example], int]:
        """The examples of a file, and how many texts they have at least."""
        read = self.reader.read or functools.partial(columns.read_texts, takes_pairs=self.reader.takes.pairs)
        return read(source, column_finder.of_flags(values, "text", "text_pair"), values.header, odd)


def read_arriving(source: ArrivingLines, takes: Takes, odd: OddRows) -> Tuple[Iterator[Example], int]:
    """The examples of lines, and how many texts they have at least; the first line says whether they are pairs."""
    lines = text_files.lines(source, odd=odd)
    first = list(itertools.islice(lines, 1))
    has_tab = any("\t" in (line or "") for _, line in first)
    of_all = takes.after(1 + has_tab)
    is_object = any(text_files.OBJECT.fullmatch(line or "") for _, line in first)
    sign = "a tab" if has_tab else "a JSON object" if is_object else ""
    if sign and of_all.most == 1:
        log.warn(f"standard input, line 1 has {sign}, and the model takes single texts: each line is read as one; to read "
                 "a column alone, set --input_file and --text_column")
    return (line if isinstance(line, Unread) else attempt(odd, _example_of_line, line_number, line, of_all, takes)
            for line_number, line in itertools.chain(first, lines)), of_all.least


def _example_of_line(line_number: int, line: str, of_all: Takes, takes: Takes) -> Example:
    """The texts of a line with tabs between; the last text of a bounded number may have tabs."""
    line = line if takes.most else line.rstrip("\t")  # as in a table, the last cells may be empty
    texts = tuple(line.split("\t", -1 if takes.most is None else takes.most - 1))
    if not of_all.allows(len(texts)):
        as_first = ", as the first line is" if of_all != takes else ""
        raise UserError(f"standard input, line {line_number}: the model takes {of_all.describe('{} with tabs between')}"
                        f"{as_first}, and this line has {counted(len(texts), 'texts')}")
    return Example(texts)


def _line(form: str, names: Sequence[str], result: Union[Result, Dict[str, str]]) -> str:
    """The line of a result or an error; a result has a field for each of `names`."""
    if isinstance(result, dict):
        result = Result([""] * len(names), result)
    return ("\t".join(result.fields) if form == "tsv" else json.dumps(result.entry, ensure_ascii=False)) + "\n"


def main(values: flags.FlagValues) -> None:
    """Predicts for all texts of the input."""
    with Predictions(values) as model:
        run(values, model)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

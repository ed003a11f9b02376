"""Predicts with a trained model that reads texts: a line for each text, in their order.

  python -m runs.predict --output_dir=out < texts.txt > predictions.tsv
"""

import contextlib
import itertools
import json
from typing import Callable, IO, Iterable, Iterator, List, Optional, Sequence

from absl import flags

from engine import log, settings
from engine.checkpoints import checkpoints
from engine.cli import command, device_flags
from engine.data import text_files
from engine.data.chunks import ArrivingLines, in_chunks
from engine.data.odd_rows import OddRows, attempt
from engine.devices.devices import Devices
from engine.disk import files
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.progress import Counter
from runs import columns, ensemble, kinds
from runs.head import AnyResult, Reader, Result
from runs.rows import UNREAD, Example, read_split

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
A text that cannot be read has a line of empty columns, or {}."""


# Texts are not counted but measured, since what is predicted for a long one is long, too.
_CHUNK_CHARACTERS = 1 << 20  # taken at a time
_LEAST_CHARACTERS = 512  # that a text counts for


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("output_dir", None, "The --output_dir of the training, or the export.",
                        flag_values=values)
    flags.DEFINE_string("input_file", None, "File of texts, by default standard input.",
                        flag_values=values)
    flags.DEFINE_string("output_file", None, "File for the predictions, .tsv or .jsonl, by "
                        "default standard output.", flag_values=values)
    flags.DEFINE_enum("format", None, ["tsv", "jsonl"], "Format of the output, by default that of "
                      "the extension of --output_file, or else tsv.", flag_values=values)
    flags.DEFINE_string("text_column", None, "The column of the text: its name, or its number "
                        "from 1; detected by default.", flag_values=values)
    flags.DEFINE_string("text_pair_column", None, "The column of the second text; detected by "
                        "default.", flag_values=values)
    flags.DEFINE_bool("header", None, "Whether the first line of --input_file names the columns; "
                      "detected by default.", flag_values=values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Reads, predicts and writes a bounded number of texts at a time."""
    model_dir = settings.required(values, "output_dir")
    batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
    trained, reader = kinds.open_reader(model_dir)
    devices = device_flags.find_devices(values, training=False)
    form = text_files.output_format(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file", [values.input_file])
    arriving, odd = None if values.input_file else ArrivingLines(), OddRows("have no prediction")
    chunks = in_chunks(_examples(values, reader, arriving, odd), _CHUNK_CHARACTERS, _size_of,
                       arriving)
    first = next(chunks, None)
    with files.output(values.output_file) as file:
        of_pairs = first and any(example.text_b is not None for example in first)
        write = _writer(form, of_pairs and reader.pair_columns or reader.columns, file, odd)
        if first is None:
            log.warn("the input has no texts")
            return
        _predict(reader, itertools.chain([first], chunks), devices,
                 ensemble.members(model_dir) or [trained.checkpoint], batch_size, write, odd)


def _predict(reader: Reader, chunks: Iterator[List[Example]], devices: Devices,
             trained: Sequence[checkpoints.Checkpoint], batch_size: int,
             write: Callable[[Iterable[AnyResult]], None], odd: OddRows) -> None:
    num_texts = num_cut = 0
    with contextlib.ExitStack() as stack:
        # One for each model of an ensemble: a text that arrives alone waits for no restoring.
        models = [(stack.enter_context(Predictor(reader.forward, devices)), checkpoint)
                  for checkpoint in trained]
        with Counter("Predicting", unit="texts") as counter:
            for examples in chunks:
                some = reader.encode(examples)
                predictions = ensemble.predict(
                    models, reader.mean, some.source, batch_size, counter.advance)
                results = zip(examples, some.decode(predictions))
                # Odd rows were counted where they were read.
                write("" if example is UNREAD else result for example, result in results)
                num_texts += len(examples)
                num_cut += some.num_cut
    if num_cut and reader.describe_cut:
        log.info(reader.describe_cut(num_cut, num_texts))
    odd.report(num_texts)


def _examples(values: flags.FlagValues, reader: Reader, arriving: Optional[ArrivingLines],
              odd: OddRows) -> Iterator[Example]:
    if not arriving:
        table = columns.read_head(
            files.require_file(values.input_file, "--input_file"), values.header)
        given = columns.Roles(values.text_column, values.text_pair_column)
        roles = columns.find(table, given, labelled=False, takes_pairs=reader.takes_pairs,
                             trained=reader.trained_columns)
        yield from read_split(columns.split_of(table, roles), "", odd=odd)
        return
    for name in ("text_column", "text_pair_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} needs --input_file; on standard input each line is a text")
    takes_pairs = reader.takes_pairs
    for line_number, line in text_files.lines_of(arriving, "standard input"):
        if takes_pairs is None:  # as the first line is
            takes_pairs = "\t" in line
        yield attempt(odd, UNREAD, _example_of_line, line_number, line, takes_pairs)


def _size_of(example: Example) -> int:
    return max(_LEAST_CHARACTERS, len(example.text_a) + len(example.text_b or ""))


def _example_of_line(line_number: int, line: str, takes_pairs: bool) -> Example:
    if not takes_pairs:
        return Example(line, None, None)
    text_a, tab, text_b = line.partition("\t")
    if not tab:
        raise UserError(f"standard input, line {line_number}: the model takes pairs of texts, or the "
                        "first line is one: two texts with a tab between, and this line has no tab")
    return Example(text_a, text_b, None)


def _writer(form: str, names: Sequence[str], file: IO[str],
            odd: OddRows) -> Callable[[Iterable[AnyResult]], None]:
    """A function that writes the results for some texts; `names` are those of their fields."""
    if form == "tsv":
        file.write("\t".join(names) + "\n")

    def write(results: Iterable[AnyResult]) -> None:
        for result in results:
            if isinstance(result, str):
                if result:
                    odd.add(result)
                result = Result([""] * len(names), {})
            fields, entry = result
            file.write("\t".join(fields) if form == "tsv" else
                       json.dumps(entry, ensure_ascii=False))
            file.write("\n")
        file.flush()

    return write


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Predicts with a trained model that reads texts: a line for each text, in their order.

  python -m runs.predict --output_dir=out < texts.txt > predictions.tsv
"""

import itertools
import json
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from absl import flags

from engine import log, settings
from engine.cli import command, device_flags, shards
from engine.data import text_files
from engine.data.chunks import ArrivingLines, ahead, in_chunks
from engine.data.odd_rows import OddRows, attempt
from engine.disk import files, resumable_file
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.progress import Counter
from runs import columns
from runs.head import AnyResult, Encoded, Reader, Result
from runs.open_model import OpenModel
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
A text that cannot be read has a line of empty columns, or {"error": why}."""


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
    shards.define_flags(values)
    shards.define_skip_flag(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Reads, predicts and writes a bounded number of texts at a time."""
    with open_model(values) as model:
        run(values, model)


def open_model(values: flags.FlagValues) -> OpenModel:
    """The model that the flags name."""
    return OpenModel(settings.required(values, "output_dir"), values)


def run(values: flags.FlagValues, model: OpenModel) -> None:
    """The same as `main`, with an open model."""
    reader, shard = model.reader, shards.asked(values)
    form = text_files.output_format(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file", [values.input_file])
    arriving, odd = None if values.input_file else ArrivingLines(), OddRows(
        "have no prediction", keeps_reasons=True, skips_lines=shards.skips_lines(values))
    output_file, facts = values.output_file, None
    if shard:
        models = [Source(f"{model.checkpoint.path}.index")]
        shards.check(values, [output_file], lambda part: {**shards.facts_of(values, part), "models": models})
        facts = {**shards.facts_of(values, shard), "models": models}
        output_file = shard.output(output_file)
    examples, are_pairs = _open_input(values, reader, arriving, odd, shard)
    names = are_pairs and reader.pair_columns or reader.columns
    header = "\t".join(names) + "\n" if form == "tsv" else ""
    with resumable_file.opened(output_file, facts, header, "texts") as (num_done, append):
        left = odd.after(examples, num_done, UNREAD)
        chunks = in_chunks(left, _CHUNK_CHARACTERS, _size_of, arriving)
        first = next(chunks, None)
        if first is None:
            if not num_done:
                log.warn("the input has no texts")
            return
        encoded = ((examples, model.reader.encode(examples))
                   for examples in itertools.chain([first], chunks))
        # While a card computes, the processor reads on.
        _predict(model, encoded if arriving else ahead(encoded), _writer(form, names, append, odd), odd,
                 may_be_odd=bool(shard))


def _predict(model: OpenModel, chunks: Iterator[Tuple[List[Example], Encoded]],
             write: Callable[[Iterable[Tuple[Example, AnyResult]]], None], odd: OddRows, *,
             may_be_odd: bool) -> None:
    num_texts = 0
    with Counter("Predicting", unit="texts") as counter:
        for examples, some in chunks:
            write(zip(examples, model.predict(some, counter.advance)))
            num_texts += len(examples)
    model.reader.report("the input")
    odd.report(num_texts, may_be_all=may_be_odd)


def _open_input(values: flags.FlagValues, reader: Reader, arriving: Optional[ArrivingLines],
                odd: OddRows, shard: Optional[shards.Shard]) -> Tuple[Iterator[Example], bool]:
    """The texts, and whether they are pairs."""
    if not arriving:
        table = columns.read_head(
            files.require_file(values.input_file, "--input_file"), values.header)
        given = columns.Roles(values.text_column, values.text_pair_column)
        roles = columns.find(table, given, labelled=False, takes_pairs=reader.takes_pairs,
                             trained=reader.trained_columns)
        part = shard and shard.part_of(values.input_file)
        return read_split(columns.split_of(table, roles), "", odd=odd, part=part), bool(roles.text_pair)
    for name in ("text_column", "text_pair_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} needs --input_file; on standard input each line is a text")
    lines = text_files.lines_of(arriving, "standard input", odd)
    first = list(itertools.islice(lines, 1))
    are_pairs = reader.takes_pairs
    if are_pairs is None:  # all as the first line is
        are_pairs = any("\t" in (line or "") for _, line in first)
    return (UNREAD if line is None
            else attempt(odd, UNREAD, _example_of_line, line_number, line, are_pairs)
            for line_number, line in itertools.chain(first, lines)), are_pairs


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


def _writer(form: str, names: Sequence[str], append: Callable[[str, int], None],
            odd: OddRows) -> Callable[[Iterable[Tuple[Example, AnyResult]]], None]:
    """A function that writes some texts' results; `names` are those of their fields."""
    def line_of(example: Example, result: AnyResult) -> str:
        if example is UNREAD:  # counted where it was read
            result = odd.reasons.popleft()
        elif isinstance(result, str):
            odd.add(result)
        if isinstance(result, str):
            result = Result([""] * len(names), {"error": result})
        fields, entry = result
        return "\t".join(fields) if form == "tsv" else json.dumps(entry, ensure_ascii=False)

    def write(results: Iterable[Tuple[Example, AnyResult]]) -> None:
        lines = [line_of(*each) + "\n" for each in results]
        append("".join(lines), len(lines))

    return write


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Predicts the labels of texts with a trained model: a line for each text, in their order.

  python -m tasks.predict --output_dir=out < texts.txt > predictions.tsv
"""

import itertools
import json
import os
import sys
from typing import Callable, IO, Iterator

from absl import flags
import numpy as np

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from encoder import classifier
from engine import checkpoints, command, device_flags, files, log, settings
from engine.data import text_files
from engine.data.chunks import in_chunks
from engine.devices import Devices
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.model import Forward
from engine.progress import Counter
from tasks import capabilities, columns, data, label_types, model_folder
from tasks.data import TextSet, encode_texts
from tasks.examples import Example, read_split

USAGE = """Predicts the labels of texts with a trained model, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m tasks.predict --output_dir=out < texts.txt > predictions.tsv
  python -m tasks.predict --output_dir=out --input_file=texts.csv --output_file=predictions.jsonl

On standard input, each line is a text, or two texts separated by a tab if the model takes pairs.
Input files are .tsv, .txt (tab-separated), .csv or .jsonl; --text_column names their column of
texts. The output has a line for each text, in the order of the input: TSV with a header line
(the label, then the probability of each label), or JSON lines."""


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
    model, checkpoint = model_folder.load(model_dir), model_folder.checkpoint_of(model_dir)
    check_reads_texts(model_dir, model)
    devices = device_flags.find_devices(values, training=False)
    form = text_files.output_format(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file", [values.input_file])
    chunks = in_chunks(_examples(values, model), data.CHUNK_EXAMPLES)
    first = next(chunks, None)
    with files.output(values.output_file) as file:
        write = _writer(form, model.kind, file)
        if first is None:
            log.warn("the input has no texts")
            return
        forward = classifier.forward_of(model.config, model.kind.num_outputs)
        sets = (encode_texts(examples, model.kind, model.encoding)
                for examples in itertools.chain([first], chunks))
        _predict(forward, sets, devices, checkpoint, batch_size, write)


def check_reads_texts(model_dir: str, model: model_folder.TrainedModel) -> None:
    """Raises a UserError if the model in `model_dir` classifies something else than texts."""
    capability = capabilities.of_model(model.kind)
    if capability:
        raise UserError(f"--output_dir={model_dir} reads {capability.reading.examples}, not plain "
                        f"texts: predict with {capability.command} --do_predict")


def _predict(forward: Forward, sets: Iterator[TextSet], devices: Devices,
             checkpoint: checkpoints.Checkpoint, batch_size: int,
             write: Callable[[np.ndarray], None]) -> None:
    texts, num_texts, num_cut = next(sets), 0, 0
    with Predictor(forward, texts.source(with_labels=False), devices) as predictor:
        predictor.restore(checkpoint)
        with Counter("Predicting", unit="texts") as counter:
            for texts in itertools.chain([texts], sets):
                source = texts.source(with_labels=False)
                logits = predictor.predict(source, batch_size, counter.advance)["logits"]
                write(texts.kind.scores(texts.combined(logits)))
                num_texts += texts.num_texts
                num_cut += texts.num_cut
    encoding = texts.encoding
    log.info(encoding.long_texts.describe(num_cut, num_texts, encoding.max_seq_length))


def _examples(values: flags.FlagValues, model: model_folder.TrainedModel) -> Iterator[Example]:
    if values.input_file:
        table = columns.read_head(_input_file(values.input_file), values.header)
        given = columns.Roles(values.text_column, values.text_pair_column, None)
        roles = columns.complete_texts(given, table, model.takes_pairs)
        columns.report(table, roles, given)
        split = columns.split_of(table, roles, table, labelled=False)
        yield from read_split(split, "")
        return
    for name in ("text_column", "text_pair_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} needs --input_file; on standard input each line is a text")
    for line_number, line in text_files.lines_of(sys.stdin.buffer, "standard input"):
        yield _example_of_line(line_number, line, model.takes_pairs)


def _input_file(path: str) -> str:
    if os.path.splitext(path)[1].lower() not in text_files.FORMATS:
        raise UserError(f"--input_file={path}: its name must end in one of "
                        f"{', '.join(text_files.FORMATS)}")
    return files.require_file(path, "--input_file")


def _example_of_line(line_number: int, line: str, takes_pairs: bool) -> Example:
    if not takes_pairs:
        return Example(line, None, None)
    text_a, tab, text_b = line.partition("\t")
    if not tab:
        raise UserError(f"standard input, line {line_number}: the model takes pairs of texts, "
                        "separated by a tab, and this line has no tab")
    return Example(text_a, text_b, None)


def _writer(form: str, kind: label_types.Kind, file: IO[str]) -> Callable[[np.ndarray], None]:
    """A function that writes the predictions for some texts, given their scores, [n, outputs]."""
    names = kind.labels
    if form == "tsv":
        file.write("\t".join(["label", *names]) + "\n")

    def write(scores: np.ndarray) -> None:
        for row, label in zip(scores, map(kind.format_label, kind.predicted_labels(scores))):
            if form == "tsv":
                fields = [label] + [f"{score:.9g}" for score in row if names]
                file.write("\t".join(fields) + "\n")
            elif names:
                probabilities = {name: float(f"{score:.9g}") for name, score in zip(names, row)}
                file.write(json.dumps({"label": label, "probabilities": probabilities},
                                      ensure_ascii=False) + "\n")
            else:
                file.write(json.dumps({"value": float(label)}) + "\n")
        file.flush()

    return write


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

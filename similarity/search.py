"""Finds the documents that are most similar to queries, and hard negatives for a training.

  python -m similarity.search --model_dir=out --documents=texts.txt --output_dir=index < queries.txt
"""

import dataclasses
import json
import re
from typing import IO, Callable, Optional, Sequence, Tuple

import numpy as np
from absl import flags

from encoder import model_files
from encoder.label_types import LINE_CHARACTERS
from engine import log, settings
from engine.cli import command, device_flags
from engine.data import text_files
from engine.data.chunks import ArrivingLines, in_chunks
from engine.data.odd_rows import OddRows
from engine.disk import files
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.progress import Counter
from engine.settings import required, setting
from similarity import index, mining
from similarity.files import Given, TextFile, open_file
from similarity.index import Index
from similarity.mining import Mining
from similarity.nearest import nearest
from similarity.vectors import Encoder

USAGE = """Finds the documents that are most similar to queries, with a model that python -m
similarity.run has trained, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python -m similarity.search --model_dir=out --documents=texts.txt --output_dir=index < queries.txt
  python -m similarity.search --model_dir=out --output_dir=index < queries.txt > found.tsv
  python -m similarity.search --model_dir=out --output_dir=index --mine_negatives=pairs.tsv \\
    --output_file=train.tsv

The first builds the index and then answers; after an interruption it goes on. Files of documents
are .txt or .tsv, .csv, .jsonl, or .json in SQuAD's format (its paragraphs): a text a line or, of
lines with several texts, those that are no anchors, each once. Standard input has a query a line;
one that arrives alone on a pipe is answered at once. All documents are compared with each query.
The third writes the pairs of a file with hard negatives, to train from: documents that the model
finds, and that are no positives of the anchor."""

_CHUNK_QUERIES = 1024
_SPACES = str.maketrans(dict.fromkeys(LINE_CHARACTERS, " "))  # in columns of TSV


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """What is found."""
    topic = "Search"
    top_k: int = setting(10, "Documents for each query.", positive=True)
    vector_size: Optional[int] = setting(
        None, "Use the first so many components of the vectors, as --matryoshka trains them; "
        "default: all.", positive=True)


@dataclasses.dataclass(frozen=True)
class MiningSettings:
    """Which hard negatives are taken."""
    topic = "Hard negatives"
    num_negatives: int = setting(
        1, "With --mine_negatives: for each pair; one with fewer is left out.", positive=True)
    negative_margin: float = setting(
        0.0, "With --mine_negatives: how much lower than the positive's a negative's score is at "
        "least.", between=(0.0, 2.0))


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("model_dir", "The --output_dir of the training, an export, or a converted model."),
            ("documents", "File of documents; builds the index."),
            ("output_dir", "The folder of the index."),
            ("mine_negatives", "File of pairs, for which hard negatives are written in the place "
             "of answers; without an index, its own texts are the documents."),
            ("output_file", "File for the answers or the pairs, .tsv or .jsonl, by default "
             "standard output.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_enum("format", None, ["tsv", "jsonl"], "Format of the output, by default that of "
                      "the extension of --output_file, or else tsv.", flag_values=values)
    flags.DEFINE_list("text_column", [], "The columns of the texts of --documents, or else of "
                      "--mine_negatives, separated by commas; each a name, or a number from 1; "
                      "detected by default.", flag_values=values)
    flags.DEFINE_bool("header", None, "Whether the first line of that file names the columns; "
                      "detected by default.", flag_values=values)
    flags.DEFINE_string("negative_ranks", "10-100", "With --mine_negatives: the ranks, from 1, of "
                        "the documents to take, the first and the last.", flag_values=values)
    settings.define_flags(values, SearchSettings)
    settings.define_flags(values, MiningSettings)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Builds the index if it is not there; answers queries, or writes hard negatives."""
    trained = model_files.open_folder(required(values, "model_dir"), "--model_dir")
    folder = required(values, "output_dir")
    chosen = settings.from_flags(values, SearchSettings)
    wanted = _mining(values)
    form = text_files.output_format(values.output_file, values.format)
    devices = device_flags.find_devices(values, training=False)
    files.check_output(values.output_file, "--output_file",
                       [values.documents, values.mine_negatives])
    documents, pairs = _open_files(values)
    batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
    with Encoder(trained, devices, values.precision, batch_size, chosen.vector_size) as encoder:
        if documents:
            index.build(folder, documents, encoder)
        found = Index(folder, encoder)
        with files.output(values.output_file) as file:
            if pairs:
                mining.mine(pairs, found, encoder, wanted, form, file)
            else:
                _answer(found, encoder, chosen.top_k, form, file)


def _mining(values: flags.FlagValues) -> Mining:
    ranks = re.fullmatch(r"(\d+)-(\d+)", values.negative_ranks.strip())
    first, last = map(int, ranks.groups()) if ranks else (0, 0)
    if not 1 <= first <= last:
        raise UserError(f"--negative_ranks={values.negative_ranks}: must be two ranks, such as "
                        "10-100")
    chosen = settings.from_flags(values, MiningSettings)
    return Mining((first, last), chosen.negative_margin, chosen.num_negatives)


def _open_files(values: flags.FlagValues) -> Tuple[Optional[TextFile], Optional[TextFile]]:
    """The file to make an index of, and that of the pairs; None for those that are not there."""
    given = Given(values.text_column, None, values.header)
    documents, pairs = values.documents, values.mine_negatives
    opened = documents and open_file(
        files.require_file(documents, "--documents"), given, labelled=False)
    if not pairs:
        return opened, None
    of_pairs = open_file(files.require_file(pairs, "--mine_negatives"),
                         Given() if documents else given, labelled=True)
    if of_pairs.has_scores:
        of_pairs = of_pairs.as_pairs()
    if of_pairs.num_texts == 1:
        raise UserError(f"--mine_negatives={pairs} has single texts, and negatives are those of "
                        "pairs: an anchor and its positive")
    is_needed = not documents and not index.is_there(values.output_dir)
    return of_pairs if is_needed else opened, of_pairs


def _answer(found: Index, encoder: Encoder, top_k: int, form: str, file: IO[str]) -> None:
    """Writes the nearest documents of each line of standard input."""
    log.info(f"Searching {len(found.texts):,} documents: standard input has a query a line")
    arriving, write = ArrivingLines(), _writer(found, form, file)
    odd, num_queries = OddRows("queries have no answer", keeps_reasons=True, skips_lines=True), 0
    lines = text_files.lines_of(arriving, "standard input", odd)
    with Counter("Searching", unit="lines") as counter:
        for chunk in in_chunks((line for _, line in lines), _CHUNK_QUERIES, arriving=arriving):
            queries = [line for line in chunk if line is not None]
            answers = zip(queries, *nearest(encoder.of_queries(queries), found.vectors, top_k)
                          ) if queries else iter(())
            for line in chunk:
                if line is None:
                    entry = json.dumps(odd.next_error(), ensure_ascii=False)
                    file.write((entry if form == "jsonl" else "\t" * 4) + "\n")
                else:
                    write(*next(answers))
            file.flush()
            counter.advance(len(chunk))
            num_queries += len(chunk)
    encoder.report("the queries")
    odd.report(num_queries)


def _writer(found: Index, form: str, file: IO[str]
            ) -> Callable[[str, np.ndarray, Sequence[int]], None]:
    """A function that writes what is found for a query: scores, and numbers of documents."""
    if form == "tsv":
        file.write("query\trank\tscore\tdocument\ttext\n")

    def write(query: str, scores: np.ndarray, numbers: Sequence[int]) -> None:
        rows = [(f"{score:.6g}", int(number) + 1, found.texts[number])
                for score, number in zip(scores, numbers)]
        if form == "jsonl":
            file.write(json.dumps({"query": query, "found": [
                {"score": float(score), "document": number, "text": text}
                for score, number, text in rows]}, ensure_ascii=False) + "\n")
            return
        for rank, (score, number, text) in enumerate(rows, 1):
            fields = (query, str(rank), score, str(number), text)
            file.write("\t".join(field.translate(_SPACES) for field in fields) + "\n")

    return write


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

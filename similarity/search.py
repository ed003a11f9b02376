"""Finds the documents that are most similar to queries, with a model that python -m
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
finds, and that are no positives of the anchor.
"""

import dataclasses
import json
from typing import IO, Optional, Tuple

import numpy as np
from absl import flags

from encoder import model_files
from encoder.label_types import LINE_CHARACTERS
from engine import log, settings
from engine.cli import command, device_flags
from engine.data import text_files
from engine.data.text_files import OddRows
from engine.disk import files
from engine.disk.parts import ArrivingLines, in_chunks
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.progress import Counter
from engine.settings import required, setting
from runs import column_finder
from similarity.files import TextFile, open_file
from similarity.index import Index, build, is_there
from similarity.mining import MiningSettings, mine
from similarity.nearest import nearest
from similarity.vectors import Encoder

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
    column_finder.define_flags(
        values, {"text": "the texts of --documents, or else of --mine_negatives"}, several=["text"])
    settings.define_flags(values, SearchSettings)
    settings.define_flags(values, MiningSettings)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Builds the index if it is not there; answers queries, or writes hard negatives."""
    trained = model_files.open_folder(required(values, "model_dir"), "--model_dir")
    folder = required(values, "output_dir")
    search = settings.from_flags(values, SearchSettings)
    mining_settings = settings.from_flags(values, MiningSettings)
    form = text_files.output_format(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file",
                       [values.documents, values.mine_negatives])
    documents, pairs = _open_files(values)
    with Encoder(trained, values, search.vector_size) as encoder:
        if documents:
            build(folder, documents, encoder)
        index = Index(folder, encoder)
        with files.output(values.output_file) as file:
            if pairs:
                mine(pairs, index, encoder, mining_settings, form, file)
            else:
                _answer(index, encoder, search.top_k, form, file)


def _open_files(values: flags.FlagValues) -> Tuple[Optional[TextFile], Optional[TextFile]]:
    """The file to make an index of, and that of the pairs; None for those that are not there."""
    given = column_finder.of_flags(values, "text"), values.header
    documents = values.documents and open_file(
        files.require_file(values.documents, "--documents"), *given, labelled=False)
    if not values.mine_negatives:
        return documents, None
    pairs = open_file(files.require_file(values.mine_negatives, "--mine_negatives"),
                      *(({}, None) if documents else given), labelled=True)
    if pairs.has_scores:
        pairs = pairs.as_pairs()
    if pairs.num_texts == 1:
        raise UserError(f"--mine_negatives={pairs.path} has single texts, and negatives are those "
                        "of pairs: an anchor and its positive")
    is_needed = not documents and not is_there(values.output_dir)
    return pairs if is_needed else documents, pairs


def _answer(index: Index, encoder: Encoder, top_k: int, form: str, file: IO[str]) -> None:
    """Writes the nearest documents of each line of standard input."""
    log.info(f"Searching {len(index.texts):,} documents: standard input has a query a line")
    if form == "tsv":
        file.write("query\trank\tscore\tdocument\ttext\n")
    arriving, num_queries = ArrivingLines(), 0
    odd = OddRows("queries have no answer", keeps_reasons=True, skips_lines=True)
    lines = text_files.lines_of(arriving, "standard input", odd)
    with Counter("Searching", unit="lines") as counter:
        for chunk in in_chunks((line for _, line in lines), _CHUNK_QUERIES, arriving=arriving):
            queries = [line for line in chunk if line is not None]
            answers = iter(())
            if queries:
                answers = zip(*nearest(encoder.of_queries(queries), index.vectors, top_k))
            for query in chunk:
                file.write(_unanswered(odd, form) if query is None else
                           _lines_of(query, *next(answers), index, form))
            file.flush()
            counter.advance(len(chunk))
            num_queries += len(chunk)
    encoder.report("the queries")
    odd.report(num_queries)


def _unanswered(odd: OddRows, form: str) -> str:
    error = json.dumps(odd.next_error(), ensure_ascii=False)
    return (error if form == "jsonl" else "\t" * 4) + "\n"


def _lines_of(query: str, scores: np.ndarray, numbers: np.ndarray, index: Index, form: str) -> str:
    """The documents with these numbers as one line of JSON, or a line of TSV for each."""
    rows = [(f"{score:.6g}", int(number) + 1, index.texts[number])
            for score, number in zip(scores, numbers)]
    if form == "jsonl":
        return json.dumps({"query": query, "found": [
            {"score": float(score), "document": number, "text": text}
            for score, number, text in rows]}, ensure_ascii=False) + "\n"
    return "".join(
        "\t".join(str(field).translate(_SPACES) for field in (query, rank, *row)) + "\n"
        for rank, row in enumerate(rows, 1))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

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
import functools
import json
from typing import Dict, List, Optional, Tuple, Union

from absl import flags

from encoder import model_files
from engine import log, settings
from engine.cli import command, device_flags
from engine.data import text_files
from engine.data.text_files import OddRows
from engine.disk import files
from engine.disk.parts import ArrivingLines
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.settings import required, setting
from runs import column_finder, stream
from runs.capability import Encoded
from similarity.files import TextFile, open_file
from similarity.index import Index, build, is_there
from similarity.mining import MiningSettings, mine
from similarity.nearest import Ranking, nearest
from similarity.vectors import Encoder

_CHUNK_QUERIES = 1024


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
    with Search(trained, values, search.vector_size) as encoder:
        if documents:
            build(folder, documents, encoder)
        encoder.index = Index(folder, encoder)
        if pairs:
            with files.output(values.output_file) as file:
                mine(pairs, encoder.index, encoder, mining_settings, form, file)
        else:
            stream.answer(values, encoder, ArrivingLines(), values.output_file, skips_lines=True)


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


class Search(Encoder, stream.Stream):
    """Finds the nearest documents of each query in an index, which is set once it is built."""
    title, unit, rows, become = "Searching", "queries", "queries", "queries have no answer"
    chunk_size = _CHUNK_QUERIES
    index: Index

    def open(self, values: flags.FlagValues, source: stream.Input, odd: OddRows) -> stream.Texts:
        log.info(f"Searching {len(self.index.texts):,} documents: standard input has a query a line")
        queries = (line for _, line in text_files.lines(source, odd=odd))
        form, self._top_k = text_files.output_format(values.output_file, values.format), values.top_k
        return stream.Texts(queries, functools.partial(self._lines_of, form),
                            "query\trank\tscore\tdocument\ttext\n" if form == "tsv" else "",
                            report=lambda: self.report("the queries"))

    def encode(self, rows: List[str]) -> Encoded:
        encoded = self.encoded([self.query_prefix + query for query in rows])
        return encoded._replace(decode=lambda predictions: zip(*nearest(
            encoded.decode(predictions), self.index.vectors, self._top_k)))

    def _lines_of(self, form: str, _: int, query: Optional[str], found: Union[Dict[str, str], Ranking]) -> str:
        """A line of JSON with the query's documents, or a line of TSV for each; `found` may be an error."""
        if isinstance(found, dict):
            return (json.dumps(found, ensure_ascii=False) if form == "jsonl" else "\t" * 4) + "\n"
        rows = [(f"{score:.6g}", int(number) + 1, self.index.texts[number]) for score, number in zip(*found)]
        if form == "jsonl":
            return json.dumps({"query": query, "found": [
                {"score": float(score), "document": number, "text": text}
                for score, number, text in rows]}, ensure_ascii=False) + "\n"
        return "".join(
            "\t".join(text_files.field(str(value)) for value in (query, rank, *row)) + "\n"
            for rank, row in enumerate(rows, 1))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

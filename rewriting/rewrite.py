"""Rewrites texts: replaces one of a text's clauses by the best phrases of a pool.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt
"""

import collections
import json
import os
import re
from typing import Any, Callable, Counter, Dict, Iterator, List, Optional, Sequence

from absl import flags

from encoder import model_files
from engine import log, settings
from engine.cli import command, device_flags, shards
from engine.cli.shards import Shard
from engine.data import text_files
from engine.data.parts import ArrivingLines
from engine.data.text_files import OddRows
from engine.disk import files
from engine.disk.provenance import Source
from engine.inference import PredictionSettings
from engine.progress import counted
from rewriting import rewriter, slot_files, texts
from rewriting.rewriter import Rewrite
from rewriting.scorer import PhraseScorer
from runs.capability import Encoded
from runs.stream import Input, Stream, Texts, run

USAGE = """Rewrites texts: replaces one clause of a text by a phrase of a pool. BM25 finds the
phrases that are nearest to the text, and the model predicts which of them fit, on every GPU
that CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt > rewrites.tsv
  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt --input_file=texts.csv \\
    --output_file=rewrites.jsonl

--output_dir is the one of `python -m rewriting.run`. With an input and an output file, the same
command resumes an interrupted run. The columns of TSV are the number of the text (from 1), the
probability that the phrase fits, the clause, the phrase and the new text. A JSON line has all
rewrites of a text.
The columns of bert-ad are the probability, the phrase and the text with the slot."""

_FIELD_ENDS = re.compile("[\t\r\n]")
# Flags that do not change the rewrites.
_WITHOUT_EFFECT = ("output_file", "num_gpus", "n_gpus", "num_cpu_replicas", "replicas_per_gpu",
                   "store_dir")


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("output_dir", None, "Where the model was trained.", flag_values=values)
    flags.DEFINE_string("pool_file", None, "The phrases: lines, or a column of a table.",
                        flag_values=values)
    flags.DEFINE_string("input_file", None, "The texts; default: the lines of standard input.",
                        flag_values=values)
    texts.define_flags(values)
    flags.DEFINE_string("output_file", None, "The rewrites; default: standard output.",
                        flag_values=values)
    flags.DEFINE_enum("format", None, sorted(FORMATS), "Format of the rewrites; "
                      "default: by the output file's name, or tsv.", flag_values=values)
    flags.DEFINE_integer("top_k", 5, "Most rewrites of a text.", flag_values=values)
    flags.DEFINE_integer("num_candidates", 50, "Phrases that the model scores for each clause.",
                         flag_values=values)
    shards.define_flags(values)
    settings.define_flags(values, PredictionSettings)
    flags.DEFINE_string("store_dir", None, "Where the prepared pool is kept; default: "
                        "<output_dir>/store.", flag_values=values)
    device_flags.define(values)
    return values


def _tsv(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return _lines([str(number), _number(rewrite.probability), rewrite.slot.clause, rewrite.phrase,
                   rewrite.text] for rewrite in rewrites)


def _bert_ad(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return _lines([_number(rewrite.probability), rewrite.phrase,
                   rewrite.slot.filled(slot_files.BERT_AD_MARK * len(rewrite.phrase))]
                  for rewrite in rewrites)


def _jsonl(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return json.dumps({"text": text, "rewrites": [
        {"probability": float(_number(rewrite.probability)), "before": rewrite.slot.before,
         "clause": rewrite.slot.clause, "after": rewrite.slot.after, "phrase": rewrite.phrase,
         "text": rewrite.text} for rewrite in rewrites]}, ensure_ascii=False) + "\n"


# Name → (number of the text, from 1; the text; its rewrites) → lines
FORMATS: Dict[str, Callable[[int, str, Sequence[Rewrite]], str]] = {
    "tsv": _tsv, "jsonl": _jsonl, "bert-ad": _bert_ad}
_HEADERS = {"tsv": "number\tprobability\tclause\tphrase\ttext\n", "jsonl": "", "bert-ad": ""}


def _number(probability: float) -> str:
    return f"{probability:.6g}"


def _lines(rows: Iterator[List[str]]) -> str:
    """Tab-separated lines; a tab or line end within a field becomes a space."""
    return "".join("\t".join(_FIELD_ENDS.sub(" ", field) for field in row) + "\n" for row in rows)


class Rewrites(Stream):
    """A scorer and a pool of phrases, and the rewrites that they give."""
    title, unit = "Scoring", "pairs"
    chunk_size = 64  # texts

    def __init__(self, values: flags.FlagValues):
        trained = model_files.open_folder(settings.required(values, "output_dir"), "--output_dir",
                                         model_files.CLASSIFIER)
        model = PhraseScorer.open(trained)
        limits = {name: settings.positive(values, name) for name in ("num_candidates", "top_k")}
        files.check_output(values.output_file, "--output_file", [values.pool_file])
        if values.input_file:  # what is wrong with it shall not wait for the pool
            files.require_file(values.input_file, "--input_file")
        super().__init__(model.forward(), trained.checkpoint, values)
        store_dir = files.make_directory(
            values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")
        phrases = rewriter.load_pool(
            settings.required(values, "pool_file"), model.encoding, store_dir)
        self._rewriter = rewriter.Rewriter(model.encoding, phrases, **limits)

    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        """Texts, and lines of one of the FORMATS."""
        form = text_files.output_format(values.output_file, values.format)
        if isinstance(source, ArrivingLines):
            read = (line for _, line in text_files.lines_of(source, "standard input"))
        else:
            read = texts.read_texts(source, "--input_file", values.text_column, values.header)
        num_without: Counter[bool] = collections.Counter()

        def write(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
            num_without[not rewrites] += 1
            return FORMATS[form](number + 1, text, rewrites)

        def report() -> None:
            if num_without[True]:
                log.warn(f"{counted(num_without[True], 'texts')} without a rewrite: there is no second clause")

        return Texts(read, write, _HEADERS[form], report=report)

    def encode(self, rows: List[str]) -> Encoded:
        """Each text's slots, each with candidates."""
        return self._rewriter.encode(rows)

    def model_facts(self) -> Dict[str, Any]:
        """The checkpoint and the pool."""
        return {"checkpoint": Source(f"{self.checkpoint.path}.index"),
                "pool": self._rewriter.pool.content_hash}

    def facts(self, values: flags.FlagValues, shard: Optional[Shard]) -> Optional[Dict[str, Any]]:
        """Also of a file of rewrites of a file of texts, which is resumed."""
        if shard or not (values.input_file and values.output_file):
            return super().facts(values, shard)
        return {**settings.as_facts(values, _WITHOUT_EFFECT), **self.model_facts(),
                "input": Source(values.input_file)}


def open_model(values: flags.FlagValues) -> Rewrites:
    """The model and the pool that the flags name."""
    return Rewrites(values)


def main(values: flags.FlagValues) -> None:
    """Rewrites all texts of the input."""
    with open_model(values) as opened:
        run(values, opened)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

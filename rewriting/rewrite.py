"""Rewrites texts: replaces one of a text's clauses by the best phrases of a pool.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt
"""

import contextlib
import functools
import itertools
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from absl import flags

from encoder import model_files
from engine import log, settings
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import command, device_flags, shards
from engine.cli.shards import Shard
from engine.data import text_files
from engine.data.chunks import ArrivingLines, in_chunks
from engine.disk import files, resumable_file
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.progress import Counter
from rewriting import pairs, rewriter, scorer, slot_files, texts
from rewriting.rewriter import Rewrite
from runs.head import Model
from tasks import head

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

_TEXTS_AT_A_TIME = 64
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


class OpenModel(NamedTuple):
    """A scorer and a pool of phrases, open for any number of files."""
    checkpoint: str  # its path
    predictor: Predictor
    rewrites: rewriter.Rewriter
    pool_hash: str


@contextlib.contextmanager
def open_model(values: flags.FlagValues) -> Iterator[OpenModel]:
    """A context with the model and the pool that the flags name."""
    model, checkpoint = _model(values)
    limits = {name: settings.positive(values, name) for name in ("num_candidates", "top_k")}
    files.check_output(values.output_file, "--output_file", [values.input_file, values.pool_file])
    devices = device_flags.find_devices(values, training=False)
    if values.input_file:  # what is wrong with it shall not wait for the pool
        files.require_file(values.input_file, "--input_file")
    store_dir = files.make_directory(
        values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")
    phrases = rewriter.load_pool(settings.required(values, "pool_file"), model.encoding, store_dir)
    with Predictor(head.forward_of(model), devices) as predictor:
        predictor.restore(checkpoint)
        yield OpenModel(checkpoint.path, predictor, rewriter.Rewriter(model.encoding, phrases, **limits),
                        phrases.content_hash)


def main(values: flags.FlagValues) -> None:
    """Reads, rewrites and writes, a bounded number of texts at a time."""
    with open_model(values) as opened:
        run(values, opened)


def run(values: flags.FlagValues, opened: OpenModel) -> None:
    """The same as `main`, with an open model."""
    batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
    form = text_files.output_format(values.output_file, values.format)
    shard = shards.asked(values)
    arriving = None if values.input_file else ArrivingLines()
    read = _texts(values, arriving, shard)
    output_file = values.output_file
    facts = _facts(values, opened, shard) if values.input_file and output_file else None
    if shard:
        shards.check(values, [output_file], functools.partial(_facts, values, opened))
        output_file = shard.output(output_file)
    with resumable_file.opened(output_file, facts,
                               _HEADERS[form], "texts") as (num_done, append), \
            Counter("Scoring", unit="pairs") as counter:

        def predict(tried: pairs.Pairs) -> np.ndarray:
            return opened.predictor.predict(tried.source(), batch_size, counter.advance)["logits"]

        number, num_without = num_done, 0
        for some in in_chunks(itertools.islice(read, num_done, None), _TEXTS_AT_A_TIME,
                              arriving=arriving):
            found = opened.rewrites.rewrite(some, predict)
            append("".join(map(FORMATS[form], itertools.count(number + 1), some, found)), len(some))
            number += len(some)
            num_without += found.count([])
    if num_without:
        log.warn(f"{num_without:,} texts have no rewrite: they have no second clause")


def _model(values: flags.FlagValues) -> Tuple[Model, Checkpoint]:
    trained = model_files.open_model(settings.required(values, "output_dir"), "--output_dir",
                                     model_files.CLASSIFIER)
    return scorer.open_model(trained), trained.checkpoint


def _texts(values: flags.FlagValues, arriving: Optional[ArrivingLines],
           shard: Optional[Shard]) -> Iterator[str]:
    if not arriving:
        return texts.read_texts(values.input_file, "--input_file", values.text_column,
                                values.header, part_of=shard and shard.part_of)
    for name in ("text_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} is for an --input_file; on standard input a line is a text")
    return (line for _, line in text_files.lines_of(arriving, "standard input"))


def _facts(values: flags.FlagValues, opened: OpenModel, shard: Optional[Shard]) -> Dict[str, Any]:
    """Everything that determines the rewrites, under names for people."""
    model = {"checkpoint": Source(f"{opened.checkpoint}.index"), "pool": opened.pool_hash}
    if shard:
        return {**shards.facts_of(values, shard), **model}
    return {**settings.as_facts(values, _WITHOUT_EFFECT), **model, "input": Source(values.input_file)}


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

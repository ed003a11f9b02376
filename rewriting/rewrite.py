"""Rewrites texts: replaces one of a text's clauses by the best phrases of a pool.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt
"""

import json
import os
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
from absl import flags

from encoder import model_files
from engine import log, settings
from engine.cli import command, device_flags, shards
from engine.cli.shards import Shard
from engine.data import text_files
from engine.data.text_files import OddRows
from engine.disk import files
from engine.disk.parts import ArrivingLines
from engine.disk.provenance import Source
from engine.inference import PredictionSettings
from engine.progress import counted
from rewriting import data, rewriter, slot_files, texts
from rewriting.rewriter import Rewrite
from rewriting.scorer import PhraseScorer
from runs import column_finder, kinds
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

# Each format's first line.
HEADERS = {"tsv": "number\tprobability\tclause\tphrase\ttext\n", "jsonl": "", "bert-ad": ""}


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (("output_dir", "Where the model was trained."),
                       ("pool_file", "The phrases: lines, or a column of a table."),
                       ("input_file", "The texts; default: the lines of standard input."),
                       ("output_file", "The rewrites; default: standard output."),
                       ("store_dir", "Where the prepared pool is kept; default: "
                        "<output_dir>/store.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    column_finder.define_flags(values, {"text": "the text"})
    flags.DEFINE_enum("format", None, sorted(HEADERS), "Format of the rewrites; "
                      "default: by the output file's name, or tsv.", flag_values=values)
    flags.DEFINE_integer("top_k", 5, "Most rewrites of a text.", flag_values=values)
    flags.DEFINE_integer("num_candidates", 50, "Phrases that the model scores for each clause.",
                         flag_values=values)
    shards.define_flags(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    return values


def _lines(form: str, number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    """The part of the output for a text, numbered from 1, in one of the formats of HEADERS."""
    shown = [f"{rewrite.probability:.6g}" for rewrite in rewrites]
    if form == "jsonl":
        return json.dumps({"text": text, "rewrites": [
            {"probability": float(probability), "before": rewrite.slot.before,
             "clause": rewrite.slot.clause, "after": rewrite.slot.after, "phrase": rewrite.phrase,
             "text": rewrite.text} for probability, rewrite in zip(shown, rewrites)]},
            ensure_ascii=False) + "\n"
    rows = [[str(number), probability, rewrite.slot.clause, rewrite.phrase, rewrite.text]
            if form == "tsv" else
            [probability, rewrite.phrase,
             rewrite.slot.filled(slot_files.BERT_AD_MARK * len(rewrite.phrase))]
            for probability, rewrite in zip(shown, rewrites)]
    return "".join("\t".join(map(text_files.field, row)) + "\n" for row in rows)


class Rewrites(Stream):
    """A scorer and a pool of phrases, and the rewrites that they give."""
    title, unit = "Scoring", "pairs"
    chunk_size = 64  # texts

    def __init__(self, values: flags.FlagValues):
        trained = model_files.open_folder(settings.required(values, "output_dir"), "--output_dir")
        model = kinds.model_in(trained, PhraseScorer)
        self._num_candidates, self._top_k = (settings.positive(values, name) for name in ("num_candidates", "top_k"))
        files.check_output(values.output_file, "--output_file", [values.pool_file])
        if values.input_file:  # what is wrong with it shall not wait for the pool
            files.require_file(values.input_file, "--input_file")
        super().__init__(model.forward(), trained.checkpoint, values)
        store_dir = files.make_directory(
            values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")
        self._encoding = model.encoding
        self._pool = rewriter.load_pool(settings.required(values, "pool_file"), model.encoding, store_dir)

    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        """Texts, and lines in one of the formats of HEADERS."""
        form = text_files.output_format(values.output_file, values.format)
        if isinstance(source, ArrivingLines):
            read = (line for _, line in text_files.lines(source))
        else:
            read = texts.read_texts(source, "--input_file", values.text_column, values.header)
        num_without = 0

        def write(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
            nonlocal num_without
            num_without += not rewrites
            return _lines(form, number + 1, text, rewrites)

        def report() -> None:
            if num_without:
                log.warn(f"{counted(num_without, 'texts')} without a rewrite: there is no second "
                         "clause")

        return Texts(read, write, HEADERS[form], report=report)

    def encode(self, rows: List[str]) -> Encoded:
        """Each text's slots, each with candidates; the result is its best rewrites, the best first."""
        numbered_slots, candidates = rewriter.candidates(rows, self._pool, self._encoding, self._num_candidates)

        def decode(predictions: Dict[str, np.ndarray]) -> List[List[Rewrite]]:
            rewrites: List[List[Rewrite]] = [[] for _ in rows]
            if not len(candidates):
                return rewrites
            probabilities = data.KIND.scores(predictions["logits"])[:, 1]
            for pair in np.argsort(-probabilities, kind="stable"):
                number, slot = numbered_slots[candidates.slots[pair]]
                if len(rewrites[number]) < self._top_k:
                    phrase, = self._pool.phrases([candidates.phrases[pair]])
                    rewrites[number].append(Rewrite(slot, phrase, float(probabilities[pair])))
            return rewrites

        return Encoded(candidates.source(), decode)

    def model_facts(self) -> Dict[str, Any]:
        """The checkpoint and the pool."""
        return {"checkpoint": Source(self.checkpoint.index_file),
                "pool": self._pool.content_hash}

    def facts(self, values: flags.FlagValues, shard: Optional[Shard]) -> Optional[Dict[str, Any]]:
        """Also of a file of rewrites of a file of texts, which is resumed."""
        is_resumed = shard or values.input_file and values.output_file
        return {**shards.facts_of(values, shard), **self.model_facts()} if is_resumed else None


def main(values: flags.FlagValues) -> None:
    """Rewrites all texts of the input."""
    with Rewrites(values) as opened:
        run(values, opened)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Rewrites texts: replaces one of a text's clauses by the best phrases of a pool.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt
"""

import hashlib
import itertools
import json
import os
from typing import Any, Dict, Iterator, Optional

from absl import flags

from encoder import model_files
from engine import interruption, log, settings
from engine.cli import command, device_flags
from engine.data import text_files
from engine.data.arriving_lines import ArrivingLines
from engine.data.chunks import in_chunks
from engine.disk import files
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.progress import Counter
from rewriting import constraints, pool, rewrite_files, rewriter, scorer, texts
from rewriting.model import pairwise

USAGE = """Rewrites texts: replaces one clause of a text by a phrase of a pool. BM25 finds the
phrases that are nearest to the text, and the model predicts which of them fit, on every GPU
that CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt > rewrites.tsv
  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt --input_file=texts.csv \\
    --output_file=rewrites.jsonl --keep_words=hotel --max_phrase_length=20

--output_dir is that of `python -m rewriting.run`. With an --output_file, the same command resumes
an interrupted run. The columns of TSV are the number of the text (from 1), the probability that
the phrase fits, the clause, the phrase and the new text. A JSON line has all rewrites of a text.
The columns of bert-ad are the probability, the phrase and the text with the slot."""

_TEXTS_AT_A_TIME = 64
# Flags that do not change the rewrites.
_WITHOUT_EFFECT = ("output_file", "num_gpus", "n_gpus", "num_cpu_replicas", "replicas_per_gpu",
                   "store_dir")


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("output_dir", None, "Where the model was trained.", flag_values=values)
    flags.DEFINE_string("pool_file", None, "The phrases: lines, or a column of a table.",
                        flag_values=values)
    flags.DEFINE_string("pool_column", None, "The column of the phrases in --pool_file, its name "
                        "or its number, from 1; default: detected.", flag_values=values)
    flags.DEFINE_string("input_file", None, "The texts; default: the lines of standard input.",
                        flag_values=values)
    texts.define_flags(values)
    flags.DEFINE_string("output_file", None, "The rewrites; default: standard output.",
                        flag_values=values)
    flags.DEFINE_enum("format", None, sorted(rewrite_files.FORMATS), "Format of the rewrites; "
                      "default: by the output file's name, or tsv.", flag_values=values)
    flags.DEFINE_integer("top_k", 5, "Most rewrites of a text.", flag_values=values)
    flags.DEFINE_integer("num_candidates", 50, "Phrases that the model scores for each clause.",
                         flag_values=values)
    flags.DEFINE_integer("min_clause_words", 2, "Fewest words (ideographs) of a clause that "
                         "is replaced.", flag_values=values)
    flags.DEFINE_integer("max_phrase_length", None, "Most characters of a phrase; default: no "
                         "limit.", flag_values=values)
    flags.DEFINE_list("keep_words", [], "Words, separated by commas, that a rewrite must have "
                      "if its text has them.", flag_values=values)
    flags.DEFINE_list("forbidden_words", [], "Words, separated by commas, that no rewrite may "
                      "have.", flag_values=values)
    settings.define_flags(values, PredictionSettings)
    flags.DEFINE_string("store_dir", None, "Where the prepared pool is kept; default: "
                        "<output_dir>/store.", flag_values=values)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Reads, rewrites and writes, a bounded number of texts at a time."""
    model, checkpoint = _model(values)
    batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
    word_constraints = _constraints(values)
    limits = rewriter.Limits(*(settings.positive(values, name) for name in (
        "min_clause_words", "num_candidates", "top_k")))
    form = text_files.output_format(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file", [values.input_file, values.pool_file])
    devices = device_flags.find_devices(values, training=False)
    arriving = None if values.input_file else ArrivingLines()
    read = _texts(values, arriving)
    store_dir = files.make_directory(
        values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")
    phrases = pool.load_pool(settings.required(values, "pool_file"), values.pool_column,
                             model.encoding, store_dir)
    rewrites = rewriter.Rewriter(model.encoding, phrases, word_constraints, limits)
    facts = _facts(values, checkpoint.path, phrases.content_hash, store_dir)
    # The graph needs an example of its input.
    example = rewrites.example().source()
    output = rewrite_files.open_output(values.output_file, form, facts)
    with Predictor(pairwise(model.config), example, devices) as predictor:
        predictor.restore(checkpoint)
        with Counter("Scoring", unit="pairs") as counter:
            predict = rewriter.predict_with(predictor, batch_size, counter.advance)
            try:
                _rewrite_all(read, arriving, rewrites, predict, rewrite_files.FORMATS[form],
                             output)
            except interruption.Interrupted as interrupted:
                if values.output_file and output.num_rows:
                    interrupted.said = (f"{output.num_rows:,} texts are done; the same command "
                                        "goes on from there")
                raise


def _rewrite_all(read: Iterator[str], arriving: Optional[ArrivingLines],
                 rewrites: rewriter.Rewriter, predict: rewriter.Predict,
                 formatted: rewrite_files.Formatter, output: rewrite_files.Output) -> None:
    digest, num_without = _skip_done(read, output), 0
    for some in in_chunks(read, _TEXTS_AT_A_TIME, arriving=arriving):
        found = rewrites.rewrite(some, predict)
        lines = []
        for number, (text, of_text) in enumerate(zip(some, found), start=output.num_rows + 1):
            digest.update(_line(text))
            num_without += not of_text
            lines.append(formatted(number, text, of_text))
        output.append("".join(lines), len(some), digest.hexdigest())
    output.finish()
    if num_without:
        log.warn(f"{num_without:,} texts have no rewrite: they have no second clause, or no phrase "
                 "meets the constraints")


def _skip_done(read: Iterator[str], output: rewrite_files.Output) -> Any:
    """Reads the texts that an earlier run has rewritten; returns their hash, to be continued."""
    digest, count = hashlib.sha256(), 0
    for text in itertools.islice(read, output.num_rows):
        digest.update(_line(text))
        count += 1
    if output.num_rows and (count, digest.hexdigest()) != (output.num_rows, output.digest):
        raise UserError(f"the first {output.num_rows:,} texts are not those that the interrupted "
                        "run has rewritten: give the same texts again, or remove the file that "
                        "ends in .part")
    return digest


def _line(text: str) -> bytes:
    return json.dumps(text).encode("utf-8") + b"\n"


def _model(values: flags.FlagValues):
    """The trained scorer and its checkpoint."""
    trained = model_files.open_model(settings.required(values, "output_dir"), "--output_dir",
                                     model_files.CLASSIFIER)
    return scorer.open_model(trained), trained.checkpoint


def _constraints(values: flags.FlagValues) -> constraints.Constraints:
    longest = values.max_phrase_length
    if longest is not None:
        settings.positive(values, "max_phrase_length")
    for name in ("keep_words", "forbidden_words"):
        if not all(word.strip() for word in values[name].value):
            raise UserError(f"--{name}={','.join(values[name].value)}: a word is empty")
    return constraints.make_constraints(longest, values.keep_words, values.forbidden_words)


def _texts(values: flags.FlagValues, arriving: Optional[ArrivingLines]) -> Iterator[str]:
    if not arriving:
        return texts.read_texts(values.input_file, "--input_file", values.text_column,
                                values.header)
    for name in ("text_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} is for an --input_file; on standard input a line is a text")
    return (line for _, line in text_files.lines_of(arriving, "standard input"))


def _facts(values: flags.FlagValues, checkpoint: str, pool_hash: str,
           store_dir: str) -> Dict[str, Any]:
    """Everything that determines the rewrites, under names for people."""
    given = {f"--{name}": values[name].value for name in values
             if name not in _WITHOUT_EFFECT and "help" not in name}
    content = values.input_file and files.content_hash(
        files.require_file(values.input_file, "--input_file"),
        os.path.join(store_dir, "hashes.json"))
    return {**given, "checkpoint": [checkpoint, os.path.getmtime(f"{checkpoint}.index")],
            "pool": pool_hash, "input": content}


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

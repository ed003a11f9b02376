"""Rewrites texts: for each its best phrases out of a pool, in the place of one of its clauses.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt
"""

import hashlib
import itertools
import json
import os
import sys
from typing import Iterator

from absl import flags

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from engine import command, device_flags, files, log, settings
from engine.data import text_files
from engine.data.chunks import in_chunks
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.progress import Counter
from rewriting import constraints, data, pairs, pool, rewrite_files, rewriter, texts
from rewriting.model import pairwise
from tasks import model_folder

USAGE = """Rewrites texts: each clause of a text may give its place to a phrase of a pool. BM25
picks the phrases that are nearest to the text, the model says which fit, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt < texts.txt > rewrites.tsv
  python -m rewriting.rewrite --output_dir=out --pool_file=pool.txt --input_file=texts.csv \\
    --output_file=rewrites.jsonl --keep_words=hotel --max_phrase_length=20

--output_dir is that of `python -m rewriting.run`. An interrupted run with an --output_file goes
on where it was. As TSV, a line has the number of the text, from 1, the probability that the
phrase fits, the clause, the phrase and the new text; as JSON lines, a line has all rewrites of
a text; bert-ad's lines have probability, phrase and the text with the slot."""

_TEXTS_AT_A_TIME = 64
# Of all that may be said, what does not change the answers.
_WITHOUT_EFFECT = ("output_file", "num_gpus", "n_gpus", "num_cpu_replicas", "replicas_per_gpu",
                   "all_reduce", "store_dir")


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("output_dir", None, "Where the model was trained.", flag_values=values)
    flags.DEFINE_string("pool_file", None, "The phrases, a line each or a column.",
                        flag_values=values)
    flags.DEFINE_string("pool_column", None, "The column of the phrases in --pool_file, its name "
                        "or its number, from 1; guessed where left out.", flag_values=values)
    flags.DEFINE_string("input_file", None, "The texts; standard input, a line each, where left "
                        "out.", flag_values=values)
    texts.define_flags(values)
    flags.DEFINE_string("output_file", None, "The rewrites; standard output where left out.",
                        flag_values=values)
    flags.DEFINE_enum("format", None, sorted(rewrite_files.FORMATS), "Of the rewrites; the output "
                      "file's, or tsv, where left out.", flag_values=values)
    flags.DEFINE_integer("top_k", 5, "Rewrites of each text.", flag_values=values)
    flags.DEFINE_integer("num_candidates", 50, "Phrases that the model judges for each clause.",
                         flag_values=values)
    flags.DEFINE_integer("min_clause_words", 2, "A clause of fewer words (ideographs) stays.",
                         flag_values=values)
    flags.DEFINE_integer("max_phrase_length", None, "Characters of the longest phrase; any where "
                         "left out.", flag_values=values)
    flags.DEFINE_list("keep_words", [], "Words that a rewrite must have where its text has them, "
                      "separated by commas.", flag_values=values)
    flags.DEFINE_list("forbidden_words", [], "Words that no rewrite may have.",
                      flag_values=values)
    settings.define_flags(values, PredictionSettings)
    flags.DEFINE_string("store_dir", None, "Where the prepared pool is kept; <output_dir>/store "
                        "where left out.", flag_values=values)
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Reads, rewrites and writes, a bounded number of texts at a time."""
    model, checkpoint = _model(values)
    batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
    demands = _constraints(values)
    limits = rewriter.Limits(*(settings.positive(values, name) for name in (
        "min_clause_words", "num_candidates", "top_k")))
    form = text_files.of_answers(values.output_file, values.format)
    files.check_output(values.output_file, "--output_file", [values.input_file, values.pool_file])
    devices = device_flags.find_devices(values, training=False)
    read = _texts(values)
    store_dir = files.make_directory(
        values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")
    phrases = pool.load_pool(settings.required(values, "pool_file"), values.pool_column,
                             model.encoding, store_dir)
    rewrites = rewriter.Rewriter(model.encoding, phrases, demands, limits)
    identity = _identity(values, checkpoint.path, phrases.content_hash, store_dir)
    # Any pairs tell the graph what pairs are made of.
    example = rewrites.example().source()
    with rewrite_files.opened(values.output_file, form, identity) as output, \
            Predictor(pairwise(model.config), example, devices) as predictor:
        predictor.restore(checkpoint)
        with Counter("Scoring", unit="pairs") as counter:
            predict = rewriter.predict_with(predictor, batch_size, counter.advance)
            _rewrite_all(read, rewrites, predict, rewrite_files.FORMATS[form], output)


def _rewrite_all(read: Iterator[str], rewrites: rewriter.Rewriter, predict: rewriter.Predict,
                 written: rewrite_files.Formatter, output: rewrite_files.Output) -> None:
    count, num_without = 0, 0
    digest = hashlib.sha256()
    if output.done:
        for text in itertools.islice(read, output.done.count):
            digest.update(_line(text))
            count += 1
        if rewrite_files.Done(count, digest.hexdigest()) != output.done:
            raise UserError(f"the first {output.done.count:,} texts are not those that the "
                            "interrupted run has rewritten: give the same texts again, or remove "
                            "the file that ends in .part")
    for some in in_chunks(read, _TEXTS_AT_A_TIME):
        for text, found in zip(some, rewrites.rewrite(some, predict)):
            digest.update(_line(text))
            count += 1
            num_without += not found
            output.write(written(count, text, found))
        output.note(rewrite_files.Done(count, digest.hexdigest()))
    if num_without:
        log.warn(f"{num_without:,} texts have no rewrite: they have no second clause, or no phrase "
                 "meets the demands")


def _line(text: str) -> bytes:
    return json.dumps(text).encode("utf-8") + b"\n"


def _model(values: flags.FlagValues):
    """The trained scorer and its checkpoint."""
    model_dir = settings.required(values, "output_dir")
    model, checkpoint = model_folder.load(model_dir), model_folder.checkpoint_of(model_dir)
    if model.task.labels != data.LABELS:
        raise UserError(f"--output_dir={model_dir} holds a classifier of other things; it must be "
                        "that of a training with python -m rewriting.run")
    pairs.check_vocabulary(model.encoding)
    return model, checkpoint


def _constraints(values: flags.FlagValues) -> constraints.Constraints:
    longest = values.max_phrase_length
    if longest is not None:
        settings.positive(values, "max_phrase_length")
    for name in ("keep_words", "forbidden_words"):
        if not all(word.strip() for word in values[name].value):
            raise UserError(f"--{name}={','.join(values[name].value)}: a word is empty")
    return constraints.make_constraints(longest, values.keep_words, values.forbidden_words)


def _texts(values: flags.FlagValues) -> Iterator[str]:
    if values.input_file:
        return texts.read_texts(values.input_file, "--input_file", values.text_column,
                                values.header)
    for name in ("text_column", "header"):
        if values[name].present:
            raise UserError(f"--{name} is for an --input_file; on standard input a line is a text")
    return (line for _, line in text_files.lines_of(sys.stdin.buffer, "standard input"))


def _identity(values: flags.FlagValues, checkpoint: str, pool_hash: str, store_dir: str) -> str:
    """Of all that shapes the answers."""
    said = {name: values[name].value for name in values
            if name not in _WITHOUT_EFFECT and "help" not in name}
    content = values.input_file and files.content_hash(
        files.require_file(values.input_file, "--input_file"),
        os.path.join(store_dir, "hashes.json"))
    parts = [said, checkpoint, os.path.getmtime(f"{checkpoint}.index"), pool_hash, content]
    return files.hash_of(json.dumps(parts, sort_keys=True).encode("utf-8"))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""Raw text → examples for pretraining, in TFRecord files.

  python -m pretraining.create_data --input_file='books/*.txt' --vocab_file=$BERT/vocab.txt \\
    --output_file=books.tfrecord

Flags and output are those of the original's create_pretraining_data.
An example has the features input_ids, input_mask, segment_ids [max_seq_length],
masked_lm_positions, masked_lm_ids, masked_lm_weights [max_predictions_per_seq] and
next_sentence_labels [1], int64 but for the weights.
Beside each file OUTPUT, OUTPUT.json holds the settings and the number of examples and tokens.

The text is tokenized once into arrays on disk, and examples are drawn as positions in them, so
that memory grows by 8 bytes an example only. The same settings give the same bytes, with any
number of processes.
"""

import contextlib
import functools
import itertools
import os
from typing import Any, Dict, Iterable, List, Optional

import numpy as np
from absl import flags

from encoder import vocabulary
from engine import log
from engine.checkpoints import checkpoint_files
from engine.cli import command, shards
from engine.data import parts, store
from engine.disk import files, provenance, scratch
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.progress import Counter
from pretraining import example_protos, objectives, texts, workers
from pretraining.corpus import Corpus, tokenize
from pretraining.features import Assembly
from pretraining.objectives import Settings
from tokenization import BatchTokenizer

import tensorflow.compat.v1 as tf

_CHUNK_EXAMPLES = 512  # that a process puts together at a time


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()

    def define(kind, name, default, *arguments, **limits):
        kind(name, default, *arguments, flag_values=values, **limits)

    define(flags.DEFINE_string, "input_file", None, "text files, comma-separated: names, patterns "
           "and directories; .gz is unpacked")
    define(flags.DEFINE_enum, "input_format", "sentences", sorted(texts.FORMATS),
           "sentences: one a line, a blank line between documents; paragraphs: one a line, split "
           "into sentences here; pairs: label TAB anything TAB text TAB text")
    define(flags.DEFINE_string, "output_file", None, "TFRecord files, comma-separated: examples "
           "are dealt out to them in turn")
    define(flags.DEFINE_string, "vocab_file", None, "the model's vocabulary")
    define(flags.DEFINE_bool, "do_lower_case", True, "lower-case the text and drop its accents, "
           "as uncased models need it")
    define(flags.DEFINE_integer, "max_seq_length", 128, "most tokens of an example",
           lower_bound=5)
    define(flags.DEFINE_integer, "max_predictions_per_seq", 20, "most masked tokens of an "
           "example", lower_bound=1)
    define(flags.DEFINE_float, "masked_lm_prob", 0.15, "share of the tokens that is masked",
           lower_bound=0.0, upper_bound=1.0)
    define(flags.DEFINE_float, "short_seq_prob", 0.1, "share of the documents whose examples are "
           "made shorter than they could be", lower_bound=0.0, upper_bound=1.0)
    define(flags.DEFINE_integer, "dupe_factor", 10, "passes over the corpus, each with other "
           "examples and masks", lower_bound=1)
    define(flags.DEFINE_integer, "random_seed", 12345, "seed of all random choices", lower_bound=0,
           upper_bound=2 ** 32 - 1)
    define(flags.DEFINE_bool, "do_whole_word_mask", False, "mask all WordPieces of a word or none")
    define(flags.DEFINE_enum, "objective", "mlm_nsp", ("mlm_nsp", "mlm", "span"),
           "mlm_nsp: masked tokens, and whether the second text follows the first; mlm: masked "
           "tokens; span, with --input_format=pairs: one span in the second text, as long as the "
           "first")
    define(flags.DEFINE_bool, "one_sentence_per_example", False, "with mlm: each sentence "
           "is an example, instead of as much of a document as fits")
    define(flags.DEFINE_integer, "num_processes", None, "processes that work in parallel, by "
           "default one for each core; the output does not depend on it", lower_bound=1)
    shards.define_flags(values)
    for name in ("input_file", "output_file", "vocab_file"):
        flags.mark_flag_as_required(name, flag_values=values)
    return values


def main(flag_values: flags.FlagValues) -> None:
    """Checks the flags, then makes the files, unless they are there already."""
    settings = _settings(flag_values)
    tokenizer = vocabulary.require_mask(
        vocabulary.load_tokenizer(flag_values.vocab_file, settings.do_lower_case),
        flag_values.vocab_file)
    paths = files.find(flag_values.input_file, "--input_file")
    outputs = _outputs(flag_values.output_file)
    for path in paths:
        files.require_file(path, "--input_file")
    vocab_hash = vocabulary.content_hash(flag_values.vocab_file)

    def facts_of(part: Optional[shards.Shard]) -> Dict[str, Any]:
        whole = parts.LINES if settings.input_format == "pairs" else parts.DOCUMENTS
        return {**settings._asdict(), "vocab_sha256": vocab_hash, "num_files": len(outputs),
                "inputs": shards.sources(paths, part, whole)}

    shard = shards.asked(flag_values)
    shards.check(flag_values, outputs, facts_of)
    facts, taken = facts_of(shard), shard.parts_of(paths) if shard else paths
    made = [shard.output(path) for path in outputs] if shard else outputs
    with files.written_alone(*made):
        if _is_done(made, facts):
            log.info(f"{', '.join(made)} is there already, made with the same settings from "
                     "the same files")
            return
        sentences = texts.read_sentences(taken, settings.input_format)
        first = next(sentences, None)
        facts = provenance.as_json(facts)
        if shard and not first:  # where there are more parts than documents
            _write_none(made, facts)
            return
        create(itertools.chain([first] if first else [], sentences), made, settings, tokenizer,
               flag_values.num_processes or len(os.sched_getaffinity(0)), facts)


def create(sentences: Iterable[texts.Sentence], outputs: List[str], settings: Settings,
           tokenizer: BatchTokenizer, num_processes: int, facts: Dict[str, Any]) -> None:
    """Writes the files `outputs`, and `facts` in a .json file beside each."""
    directory = os.path.dirname(outputs[0]) or "."
    with scratch.folder(directory) as work_dir:
        corpus = tokenize(sentences, work_dir, tokenizer, num_processes)
        if settings.objective == "mlm_nsp" and len(corpus.documents) < 2:
            raise UserError("--objective=mlm_nsp takes second texts from other documents, and the "
                            "text is one document: put blank lines between its documents, or "
                            "give --objective=mlm")
        examples = _draw(corpus, work_dir, settings, num_processes)
        order = np.random.RandomState([settings.random_seed]).permutation(len(examples))
        _write(Assembly(corpus, examples, order, tokenizer, settings), outputs, num_processes,
               facts)


def _settings(flag_values: flags.FlagValues) -> Settings:
    settings = Settings(**{name: flag_values[name].value for name in Settings._fields})
    if (settings.input_format == "pairs") != (settings.objective == "span"):
        raise UserError("--input_format=pairs and --objective=span are for each other")
    if settings.one_sentence_per_example and settings.objective != "mlm":
        raise UserError("--one_sentence_per_example is for --objective=mlm: an example of others "
                        "has two texts")
    return settings


def _draw(corpus: Corpus, directory: str, settings: Settings, num_processes: int) -> store.Store:
    """The spans of the corpus that make up each example, as a store."""
    draw = functools.partial(objectives.draw, corpus=corpus, settings=settings)

    def chunks():
        with Counter("Drawing examples", unit="examples") as counter:
            blocks = objectives.blocks(corpus, settings)
            for chunk in workers.in_order(draw, blocks, num_processes):
                counter.advance(len(chunk["label"]))
                yield chunk

    examples = store.open_or_build(directory, "examples", {}, objectives.COLUMNS, chunks)
    if not len(examples):
        raise UserError("--input_file: no pair has a first text of two tokens or more and a "
                        "second one that is longer, within --max_seq_length")
    return examples


def _write(assembly: Assembly, outputs: List[str], num_processes: int,
           facts: Dict[str, Any]) -> None:
    """Writes all examples and, beside each file, the facts, their number and sums over them."""
    total = len(assembly.examples)
    chunks = ((start, min(start + _CHUNK_EXAMPLES, total))
              for start in range(0, total, _CHUNK_EXAMPLES))
    sums = np.zeros(3, np.int64)
    with contextlib.ExitStack() as stack:
        drafts = _drafts(stack, outputs)
        writers = [stack.enter_context(tf.python_io.TFRecordWriter(draft)) for draft in drafts]
        counter = stack.enter_context(Counter("Writing", unit="examples", total=total))
        number = 0
        serialize = functools.partial(_serialize, assembly)
        for messages, chunk_sums in workers.in_order(serialize, chunks, num_processes):
            for message in messages:
                writers[number % len(writers)].write(message)
                number += 1
            sums += chunk_sums
            counter.advance(len(messages))
        num_tokens, num_masked, num_labels = map(int, sums)
        # Before the files get their names: a file without its facts could not be taken up.
        for path, draft, writer in zip(outputs, drafts, writers):
            writer.close()
            files.write_json(_facts_path(path), {
                **facts, "num_examples": total, "num_tokens": num_tokens, "num_masked": num_masked,
                "num_next_sentence_labels": num_labels, "content": _content(path, draft)})
    least = ", the least: one in each example" if num_masked == total else ""
    labels = "" if assembly.settings.objective == "mlm" else (
        f"; next_sentence_labels is 1 in {num_labels / total:.1%}")
    log.info(f"{total:,} examples of {num_tokens / total:.1f} tokens, "
             f"{num_masked / num_tokens:.1%} of them masked{least}{labels}")


def _write_none(outputs: List[str], facts: Dict[str, Any]) -> None:
    with contextlib.ExitStack() as stack:
        for path, draft in zip(outputs, _drafts(stack, outputs)):
            tf.python_io.TFRecordWriter(draft).close()
            files.write_json(_facts_path(path), {**facts, **dict.fromkeys(
                ("num_examples", "num_tokens", "num_masked", "num_next_sentence_labels"), 0),
                "content": _content(path, draft)})
    log.info("no document begins in this part: its files are empty")


def _drafts(stack: contextlib.ExitStack, outputs: List[str]) -> List[str]:
    """The temporary paths of the outputs, which are published at the end of the stack."""
    for path in outputs:
        stack.enter_context(checkpoint_files.writing(path))
    return [stack.enter_context(files.atomic_path(path)) for path in outputs]


def _content(path: str, draft: str) -> List[Any]:
    return [os.path.abspath(path), *Source(draft).fact()[1:]]  # the time stays the same


def _serialize(assembly: Assembly, chunk):
    """The messages of the examples from chunk[0] up to chunk[1], and sums over them: tokens,
    masked tokens, labels."""
    features = assembly.features(*chunk)
    sums = [features[name].sum() for name in (
        "input_mask", "masked_lm_weights", "next_sentence_labels")]
    return example_protos.serialize(features), np.array(sums, np.int64)


def _outputs(names: str) -> List[str]:
    paths = [name.strip() for name in names.split(",") if name.strip()]
    if not paths or len(set(paths)) < len(paths):
        raise UserError(f"--output_file={names}: must be one or more different files")
    for path in paths:
        files.make_directory(os.path.dirname(path) or ".", "--output_file: directory")
        if os.path.isdir(path):
            raise UserError(f"--output_file={path} is a directory; give the name of a file")
    return paths


def _is_done(outputs: List[str], facts: Dict[str, Any]) -> bool:
    """Whether all files are there; raises a UserError if one was made from something else."""
    existing, are_intact = [path for path in outputs if os.path.exists(path)], True
    for path in existing:
        if not os.path.exists(_facts_path(path)):
            raise UserError(f"--output_file={path} is there, and it is not known how it was "
                            "made: remove it, or give another name")
        record = files.read_record(_facts_path(path), "the facts", {})
        other = provenance.difference(record, facts)
        if other:
            raise UserError(f"--output_file={path} is there, made with another {other}; remove it, or "
                            "give another name")
        if not provenance.is_intact(path, record):
            log.warn(f"{path} is not as it was written: it is made again")
            are_intact = False
    return are_intact and len(existing) == len(outputs)


def _facts_path(path: str) -> str:
    return f"{path}.json"


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

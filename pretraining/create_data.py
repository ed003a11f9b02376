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
import dataclasses
import functools
import itertools
import os
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np
from absl import flags

from encoder import vocabulary
from engine import log
from engine.cli import command, shards
from engine.data import store, text_files
from engine.disk import artifact, files, parts, patterns, provenance, scratch
from engine.disk.artifact import Artifact
from engine.errors import UserError
from engine.progress import Counter
from engine.settings import define_flags as define_settings, from_flags
from pretraining import example_protos, objectives, texts, words, workers
from pretraining.corpus import Corpus, tokenize
from pretraining.features import Assembly
from pretraining.objectives import Settings
from tokenization import BatchTokenizer

import tensorflow.compat.v1 as tf

_CHUNK_EXAMPLES = 512  # that a process puts together at a time


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("input_file", "text files, comma-separated: names, patterns and directories; .gz is "
             "unpacked"),
            ("output_file", "TFRecord files, comma-separated: examples are dealt out to them in "
             "turn"),
            ("vocab_file", "the model's vocabulary")):
        flags.DEFINE_string(name, None, text, flag_values=values)
        flags.mark_flag_as_required(name, flag_values=values)
    define_settings(values, Settings)
    flags.DEFINE_integer("num_processes", None, "processes that work in parallel, by default one "
                         "for each core; the output does not depend on it", lower_bound=1,
                         flag_values=values)
    shards.define_flags(values)
    return values


def main(flag_values: flags.FlagValues) -> None:
    """Checks the flags, then makes the files, unless they are there already."""
    settings = _settings(flag_values)
    of_pairs = settings.objective == objectives.SPAN
    tokenizer = vocabulary.require_mask(
        vocabulary.load_tokenizer(flag_values.vocab_file, settings.do_lower_case),
        flag_values.vocab_file)
    paths = patterns.find(flag_values.input_file, "--input_file")
    outputs = _outputs(flag_values.output_file, paths)
    for path in paths:
        files.require_file(path, "--input_file")
        if not of_pairs:
            text_files.check_lines(path)
    vocab_hash = vocabulary.content_hash(flag_values.vocab_file)

    def facts_of(part: Optional[shards.Shard]) -> Dict[str, Any]:
        whole = parts.LINES if of_pairs else parts.DOCUMENTS
        return {**dataclasses.asdict(settings), "vocab_sha256": vocab_hash,
                "input_format": "pairs" if of_pairs else "sentences",  # as earlier versions recorded it
                "num_files": len(outputs), "inputs": shards.sources(paths, part, whole)}

    shard = shards.from_flags(flag_values)
    shards.check(flag_values, outputs, facts_of)
    facts = facts_of(shard)
    examples = [Artifact(shard.output(path) if shard else path, facts) for path in outputs]
    with artifact.making(*examples) as is_needed:
        if not is_needed:
            return
        sentences = texts.read_sentences(shard.parts_of(paths) if shard else paths, of_pairs=of_pairs)
        first = next(sentences, None)
        if shard and not first:  # where there are more parts than documents
            _write([], 0, examples)
            log.info("no document begins in this part: its files are empty")
            return
        create(itertools.chain([first] if first else [], sentences), examples, settings, tokenizer,
               flag_values.num_processes or len(os.sched_getaffinity(0)))


def create(sentences: Iterable[texts.Sentence], outputs: List[Artifact], settings: Settings,
           tokenizer: BatchTokenizer, num_processes: int) -> None:
    """Writes the files `outputs`, which have the same facts."""
    with scratch.folder(os.path.dirname(outputs[0].path) or ".") as work_dir:
        words_of = words.segmenter(settings.word_segmenter, do_whole_word_mask=settings.do_whole_word_mask)
        corpus, counts = tokenize(sentences, work_dir, tokenizer, num_processes, words_of)
        if words_of:
            words.report(counts, settings.word_segmenter)
        if settings.objective == "mlm_nsp" and corpus.num_documents < 2:
            raise UserError("--objective=mlm_nsp takes second texts from other documents, and the "
                            "text is one document: put blank lines between its documents, or "
                            "give --objective=mlm")
        examples = _draw(corpus, work_dir, settings, num_processes)
        total = len(examples)
        order = np.random.RandomState([settings.random_seed]).permutation(total)
        chunks = ((start, min(start + _CHUNK_EXAMPLES, total))
                  for start in range(0, total, _CHUNK_EXAMPLES))
        serialize = functools.partial(
            _serialize, Assembly(corpus, examples, order, tokenizer, settings))
        num_tokens, num_masked, num_labels = _write(
            workers.in_order(serialize, chunks, num_processes), total, outputs)
    least = ", the least: one in each example" if num_masked == total else ""
    labels = ""
    if settings.objective != "mlm":
        labels = f"; next_sentence_labels is 1 in {num_labels / total:.1%}"
        objectives.warn_of_equal_labels(num_labels / total, "a blank line ends a document, and there may be one "
                                        "after each sentence; --objective=mlm makes examples without second texts")
    log.info(f"{total:,} examples of {num_tokens / total:.1f} tokens, "
             f"{num_masked / num_tokens:.1%} of them masked{least}{labels}")


def _settings(flag_values: flags.FlagValues) -> Settings:
    settings = from_flags(flag_values, Settings)
    if settings.one_sentence_per_example and settings.objective != "mlm":
        raise UserError("--one_sentence_per_example is for --objective=mlm: an example of others "
                        "has two texts")
    return settings


def _outputs(names: str, inputs: List[str]) -> List[str]:
    paths = [name.strip() for name in names.split(",") if name.strip()]
    if not paths or len(set(paths)) < len(paths):
        raise UserError(f"--output_file={names}: must be one or more different files")
    for path in paths:
        files.check_output(path, "--output_file", inputs)
    return paths


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


def _serialize(assembly: Assembly, chunk: Tuple[int, int]) -> Tuple[List[bytes], np.ndarray]:
    """The messages of the examples from chunk[0] up to chunk[1], and sums over them: tokens,
    masked tokens, labels."""
    features = assembly.features(*chunk)
    sums = [features[name].sum() for name in (
        "input_mask", "masked_lm_weights", "next_sentence_labels")]
    return example_protos.serialize(features), np.array(sums, np.int64)


def _write(chunks: Iterable[Tuple[List[bytes], np.ndarray]], total: int, outputs: List[Artifact]) -> List[int]:
    """Writes examples and, beside each file, the facts, their number and the sums over them.

    Args:
        chunks: see `_serialize`.

    Returns:
        The sums.
    """
    number, sums = 0, np.zeros(3, np.int64)
    record: Dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        drafts = [stack.enter_context(output.written(record)) for output in outputs]
        writers = [stack.enter_context(tf.python_io.TFRecordWriter(draft)) for draft in drafts]
        counter = stack.enter_context(Counter("Writing", unit="examples", total=total))
        for messages, sums_of_chunk in chunks:
            for message in messages:
                writers[number % len(writers)].write(message)
                number += 1
            sums += sums_of_chunk
            counter.advance(len(messages))
        counts = dict(zip(("num_tokens", "num_masked", "num_next_sentence_labels"), sums.tolist()))
        record.update(provenance.as_json(outputs[0].facts), num_examples=total, **counts)
    return sums.tolist()


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

"""Augments a task's training set, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python -m augmentation.run --task_name=cola --data_dir=glue/CoLA --output_dir=augmented \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --glove_embs=glove.6B.300d.txt

--output_dir becomes a --data_dir for run_classifier.py and distillation.run: the augmented
training set in the task's own format, and the task's other sets. After an interruption the
same command resumes where it was.

TinyBERT's algorithm (Jiao et al. 2020). The texts of a pair are varied one at a time, the other
one kept: up to 2 N + 1 rows for a pair and N + 1 for a single text, the original row first. All
columns are kept.
"""

import csv
import filecmp
import io
import itertools
import json
import os
import shutil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from absl import flags

from augmentation import masked_lm, word_vectors
from augmentation.candidates import Candidates, Text, parse
from augmentation.masked_lm import MaskedLanguageModel
from augmentation.variants import variants
from encoder import model_flags
from engine import log, settings
from engine.cli import command, device_flags, shards
from engine.data import text_files
from engine.devices.devices import FLOAT32
from engine.disk import files
from engine.disk.artifact import DAMAGED, GrowingFile
from engine.disk.parts import Part, in_chunks
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.progress import Counter
from runs.rows import Example, Split, read_rows
from tasks import task_flags, user_files
from tasks.table import OWN_DATA, Task, find_task

# The paper's number of rounds, and that of its published code for each task.
_ROUNDS = 20
_ROUNDS_OF_TASK = {"cola": 30, "mrpc": 30, "rte": 30, "sts-b": 30, "wnli": 30,
                   "sst-2": 20, "qnli": 20, "mnli": 10, "qqp": 10, "xnli": 10}
# Words that may be replaced in one chunk of rows, for each step that runs at a time: a chunk takes
# a BERT-Base seconds. A row without any counts as one.
_WORDS_AT_A_TIME = {"GPU": 4096, "CPU": 256}


class Row(NamedTuple):
    """A row of a task's file."""
    line_number: int  # from 1
    example: Example
    fields: Any  # a list of texts, or the object of a JSON line
    split: Split

    @property
    def texts(self) -> Tuple[str, ...]:
        """Those of the example."""
        return self.example.texts

    def with_text(self, place: int, text: str) -> str:
        """This row with another text in a place of `texts`, as the file has it: one line, in CSV maybe several."""
        columns, is_json = self.split.columns, self.split.format == "jsonl"
        fields = self.fields.copy()
        for column, each in zip(columns.texts, (*self.texts[:place], text, *self.texts[place + 1:])):
            fields[self.split.keys[column] if is_json else column] = each
        return _line_of(fields, self.split.format)


class Job(NamedTuple):
    """Everything that an augmentation needs."""
    values: flags.FlagValues  # checked; --N is set
    task: Task
    output_file: str
    part: Optional[Part]  # of the training set, if not all of it is augmented
    model: MaskedLanguageModel


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    task_flags.define_named(values)
    flags.DEFINE_string("output_dir", None, "Where the augmented training set goes, beside "
                        "copies of the task's other sets.", flag_values=values)
    model_flags.define(values, "the masked LM, head included")
    flags.DEFINE_string("glove_embs", None, "Word vectors as text (GloVe's or word2vec's), to "
                        "replace words of several WordPieces; by default those are kept.",
                        flag_values=values)
    flags.DEFINE_integer("N", None, "Rounds: the most variants of a text. Default: the paper's "
                         f"for the task; {_ROUNDS} for your own files.", flag_values=values)
    flags.DEFINE_integer("M", 15, "Candidates for each word.", flag_values=values)
    flags.DEFINE_float("p", 0.4, "Probability that a word is replaced, in each round.",
                       flag_values=values)
    flags.DEFINE_integer("seed", 42, "Seed of the replacements.", flag_values=values)
    flags.DEFINE_integer(
        "max_seq_length", None, "Longest input of the masked LM in tokens; longer texts are cut to "
        "what fits around the word. Default: all positions that the model has.",
        flag_values=values)
    shards.define_flags(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define(values)
    values.set_default("precision", FLOAT32)  # see masked_lm: nearly equal scores are told apart
    return values


def open_model(values: flags.FlagValues) -> MaskedLanguageModel:
    """The model that the flags name."""
    config, encoding, checkpoint = model_flags.load_masked_lm(values)
    if values["max_seq_length"].present:
        settings.in_range(
            values, "max_seq_length", masked_lm.SHORTEST_INPUT, config.max_position_embeddings)
    if values.glove_embs:
        files.require_file(values.glove_embs, "--glove_embs")
    return MaskedLanguageModel(config, encoding, checkpoint, values)


def main(values: flags.FlagValues) -> None:
    """Checks the input, then augments row by row, in constant memory."""
    with open_model(values) as model:
        run(values, model)


def run(values: flags.FlagValues, model: MaskedLanguageModel) -> None:
    """The same as `main`, with an open model."""
    job = _job(values, model)
    total = sum(1 for _ in job.task.train.examples(job.task.kind, part=job.part))
    output = GrowingFile(job.output_file, _facts(job), _header_of(job.task.train))
    with output.growing(f"of {total:,} examples", replaces=(DAMAGED,)) as file:
        if file.is_whole:
            return
        vectors = word_vectors.load(values.glove_embs) if values.glove_embs else None
        if not vectors:
            log.info("no --glove_embs: words of several WordPieces are kept")
        num_done = file.num_rows
        num_variants = _augment(job, Candidates(model, vectors), file, total)
    log.info(f"{file.path} is whole; the {total - num_done:,} examples of this run have "
             f"{num_variants:,} variants")
    if total > num_done and not num_variants:
        log.warn("none of these examples has a variant: none of their words is a single token of "
                 "--vocab_file, or has neighbours in --glove_embs")


def _augment(job: Job, candidates: Candidates, file: GrowingFile, total: int) -> int:
    """Appends the rows that an earlier run has left; returns the number of variants."""
    devices, train = job.model.devices, job.task.train
    chunk_words = _WORDS_AT_A_TIME[devices.kind] * len(devices.names) * devices.concurrent_steps
    parsed = ((row, [parse(text, job.model.encoding.tokenizer) for text in row.texts])
              for row in itertools.islice(_rows_of(job), file.num_rows, None))
    num_variants = 0
    with Counter(f"Augmenting {os.path.basename(train.file)}", unit="examples",
                 total=total - file.num_rows, contents="words") as counter:
        for chunk in in_chunks(parsed, chunk_words,
                               lambda row: 1 + sum(len(text.words) for text in row[1])):
            lines = list(_augmented(chunk, candidates, job.values, counter))
            num_variants += len(lines) - len(chunk)
            file.append("".join(lines), len(chunk))
            counter.advance(len(chunk))
    return num_variants


def _augmented(rows: Sequence[Tuple[Row, List[Text]]], candidates: Candidates,
               values: flags.FlagValues, counter: Counter) -> Iterator[str]:
    """The lines that the rows become."""
    of_texts = iter(candidates.of_texts([text for _, texts in rows for text in texts],
                                        lambda num_words: counter.advance(0, contents=num_words)))
    for row, texts in rows:
        # Each text has a generator of its own: its variants do not depend on other texts.
        versions = [
            variants(text, parsed.words, next(of_texts), num_rounds=values.N,
                     probability=values.p,
                     generator=np.random.RandomState([values.seed, int(row.line_number), index]))
            for index, (text, parsed) in enumerate(zip(row.texts, texts))]
        for place, of_text in enumerate(versions):
            for version in of_text[bool(place):]:  # the first text's versions begin with the row itself
                yield row.with_text(place, version)


def _line_of(fields: Any, form: str) -> str:
    """A row of a file of this format, with its line end."""
    if form == "jsonl":
        return text_files.whole_characters(json.dumps(fields, ensure_ascii=False)) + "\n"
    if form == "tsv":
        return "\t".join(fields) + "\n"
    line = io.StringIO()
    csv.writer(line).writerow(fields)  # quotes a field with \r only if its own line end has one
    return line.getvalue()[:-len("\r\n")] + "\n"


def _header_of(split: Split) -> str:
    """The line that names the columns; empty if the file has none."""
    if split.format == "jsonl" or not split.columns.header:
        return ""
    rows = text_files.csv_rows(split.file) if split.format == "csv" else text_files.tsv_rows(split.file)
    return _line_of(next(rows)[1], split.format)


def _rows_of(job: Job) -> Iterator[Row]:
    """Streams the rows of the training set, or of the part of it, that hold an example."""
    split, kind = job.task.train, job.task.kind
    objects = text_files.json_objects(job.part or split.file)
    for line_number, fields, example in read_rows(kind, split, part=job.part):
        if split.format == "jsonl":  # with the keys that the task does not read
            fields = next(fields for number, fields in objects if number == line_number)
        yield Row(line_number, example, fields, split)


def _facts(job: Job) -> Dict[str, Any]:
    """Everything that determines the output, under names for people."""
    train, values, model = job.task.train, job.values, job.model
    return {
        "training data": [Source(job.part or train.file), train.columns.facts(), train.keys],
        "vocabulary": model.encoding.vocab_hash,
        "do_lower_case": model.encoding.do_lower_case,
        "max_seq_length": model.encoding.max_seq_length,
        "model config": model.config.to_dict(),
        "checkpoint": Source(model.checkpoint.index_file),
        "word vectors": Source(values.glove_embs) if values.glove_embs else None,
        "N": values.N, "M": values.M, "p": values.p, "seed": values.seed,
        "--precision": values.precision}


def _job(values: flags.FlagValues, model: MaskedLanguageModel) -> Job:
    """Checks the flags; the output directory is created last, after all checks."""
    name, task = _task(values)
    train_file = files.require_file(task.train.file, "the task's file")
    layout = None if name == OWN_DATA else find_task(name)[1]
    if values.N is None:
        values.N = _ROUNDS_OF_TASK.get(name, _ROUNDS)
    settings.positive(values, "N")
    settings.in_range(values, "p", 0, 1)
    settings.in_range(values, "seed", 0, 2**32 - 1)
    output_dir = files.make_directory(settings.required(values, "output_dir"), "--output_dir")
    output_file = os.path.join(output_dir, layout.train.file if layout else os.path.basename(train_file))
    files.check_output(output_file, "--output_dir", [train_file])
    job = Job(values, task, output_file, None, model)
    shard = shards.from_flags(values, inputs=None)
    if shard:
        shards.check(values, [output_file],
                     lambda part: _facts(job._replace(part=part.part_of(train_file))))
        job = job._replace(part=shard.part_of(train_file), output_file=shard.output(output_file))
    if layout:
        _copy_other_sets(layout, values.data_dir, output_dir)
    return job


def _task(values: flags.FlagValues) -> Tuple[str, Task]:
    name = settings.required(values, "task_name")
    if name == OWN_DATA:
        for other in ("dev_file", "test_file"):
            if values[other].present:
                raise UserError(f"--{other}: only the training set is augmented; leave it out")
        return name, user_files.make_task(values, ["train"])
    return task_flags.of_table(values)


def _copy_other_sets(task: Task, data_dir: str, output_dir: str) -> None:
    """Copies the task's other sets, so that the output is a complete --data_dir."""
    for split in (task.dev, task.test, task.mismatched_dev, task.mismatched_test):
        source = os.path.join(data_dir, split.file) if split else ""
        if os.path.exists(source):
            target = os.path.join(output_dir, split.file)
            if os.path.exists(target) and not filecmp.cmp(source, target, shallow=False):
                raise UserError(f"{target} is another file than {source}, which is copied there; name another --output_dir, "
                                "or remove it")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with files.atomic_path(target) as temporary:
                shutil.copyfile(source, temporary)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

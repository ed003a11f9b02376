"""Extracts the features of a file of texts into another file, in bounded memory."""

import contextlib
import itertools
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

import modeling
from encoder.encoding import Encoding
from engine import interruption, log
from engine.checkpoints import checkpoints
from engine.data.chunks import in_chunks
from engine.devices.devices import Devices
from engine.disk import files
from engine.disk.resumable_file import ResumableFile
from engine.errors import UserError
from engine.inference import Predictor
from engine.progress import Counter
from features import formats, model
from features.texts import Texts, read_texts

_CHUNK_TEXTS = 4096  # computed at a time, or fewer:
_CHUNK_VALUES = 2**26  # 256 MB
_WRITTEN_VALUES = 2**22  # at a time


class Job(NamedTuple):
    """Everything that an extraction needs."""
    input_file: str
    output_file: str
    config: modeling.BertConfig
    encoding: Encoding
    checkpoint: checkpoints.Checkpoint
    devices: Devices
    precision: str
    per_replica_batch_size: int
    layers: List[int]  # indices of layers, from 0, or from -1 backwards
    pooling: Optional[str]  # one of model.POOLINGS, or None for a vector of each token
    output_format: str  # one of formats.FORMATS
    output_dtype: str  # one of formats.DTYPES

    @property
    def width(self) -> int:
        """The number of values of a vector."""
        return len(self.layers) * self.config.hidden_size

    @property
    def values_per_text(self) -> int:
        """The largest number of values of a text."""
        return self.width * (1 if self.pooling else self.encoding.max_seq_length)

    def format(self, num_texts: int) -> formats.Format:
        """How features are written."""
        if self.output_format == formats.NPY:
            return formats.Array(num_texts, self.width, self.output_dtype)
        return formats.VectorLines() if self.pooling else formats.TokenLines(self.layers)

    def facts(self) -> Dict[str, Any]:
        """Everything that determines the output, under names for people."""
        return {
            "--input_file": files.hash_of_file(self.input_file),
            "vocabulary": self.encoding.vocab_hash,
            "--do_lower_case": self.encoding.do_lower_case,
            "--max_seq_length": self.encoding.max_seq_length,
            "model config": self.config.to_dict(),
            # The index holds a checksum of every tensor.
            "checkpoint": files.hash_of_file(f"{self.checkpoint.path}.index"),
            "--precision": self.precision, "--layers": self.layers, "--pooling": self.pooling,
            "--output_format": self.output_format, "--output_dtype": self.output_dtype}


def extract(job: Job) -> None:
    """Writes the features of all texts, in their order; goes on where an interrupted run was.

    Raises:
        UserError: the input cannot be read, or changes; out of memory; a value that a type cannot
            hold.
        Interrupted: SIGTERM or Ctrl-C.
    """
    total = sum(1 for _ in read_texts(job.input_file))
    output_format = job.format(total)
    file = ResumableFile(job.output_file, job.facts(), keep_record=False,
                         header=output_format.header)
    if file.num_rows:
        log.info(f"Going on with {file.partial_path}: {file.num_rows:,} texts are done")
    if not total:
        log.warn(f"--input_file={job.input_file} holds no texts")
    try:
        if file.num_rows < total:
            _append_all(job, output_format, file, total)
    except interruption.Interrupted as interrupted:
        interrupted.said = (f"{file.num_rows:,} of {total:,} texts are done; the same command goes "
                            "on from there")
        raise
    if file.num_rows != total:
        raise UserError(f"--input_file={job.input_file} has changed while it was read: it had "
                        f"{total:,} texts, and then {file.num_rows:,}; start again")
    file.finish()


def _append_all(job: Job, output_format: formats.Format, file: ResumableFile, total: int) -> None:
    chunk_size = max(1, min(_CHUNK_TEXTS, _CHUNK_VALUES // job.values_per_text))
    # An earlier run may have ended within a chunk. It is computed again as a whole: in other
    # batches its values would have other roundings.
    num_done = file.num_rows % chunk_size
    first = file.num_rows - num_done
    left = itertools.islice(read_texts(job.input_file), first, None)
    forward, predictors, num_cut = model.forward_of(job.config, job.layers, job.pooling), [], 0
    with Counter("Extracting", unit="texts", total=total - first) as counter, \
            contextlib.ExitStack() as stack:
        for some in in_chunks(left, chunk_size):
            texts = Texts.of(some, job.encoding)
            num_cut += texts.num_cut
            if not predictors:
                predictors.append(stack.enter_context(
                    Predictor(forward, texts.source(), job.devices)))
                predictors[0].restore(job.checkpoint)
            states = predictors[0].predict(
                texts.source(), job.per_replica_batch_size, counter.advance)["states"]
            states = formats.as_type(states, job.output_dtype)
            _append(job, output_format, file, texts, states, num_done)
            num_done = 0
    if num_cut:
        said = job.encoding.long_texts.describe(num_cut, total - first, job.encoding.max_seq_length)
        log.info(f"Of the texts that were left, {said}" if first else said)


def _append(job: Job, output_format: formats.Format, file: ResumableFile, texts: Texts,
            states: np.ndarray, num_done: int) -> None:
    """Appends the states of some texts but for the first `num_done`."""
    first_number = file.num_rows - num_done
    num_written = max(1, _WRITTEN_VALUES // job.values_per_text)
    for part in in_chunks(range(num_done, len(states)), num_written):
        file.append(output_format.rows(texts, states, part, first_number), len(part))

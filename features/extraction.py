"""Extracts the features of a file of texts into another file, in bounded memory."""

import itertools
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

import modeling
from encoder.encoding import Encoding
from engine import log
from engine.checkpoints import checkpoints
from engine.data.chunks import in_chunks
from engine.devices.devices import Devices
from engine.disk import files
from engine.disk.resumable_file import ResumableFile
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
        UserError: the input cannot be read; out of memory; a value that a type cannot hold.
        Interrupted: SIGTERM or Ctrl-C.
    """
    total = sum(1 for _ in read_texts(job.input_file))
    header = b""
    if job.output_format == formats.NPY:
        header = formats.array_header(total, job.width, job.output_dtype)
    file = ResumableFile(job.output_file, job.facts(), header=header)
    if not total:
        log.warn(f"--input_file={job.input_file} holds no texts")
    with file.completing(f"of {total:,} texts"):
        if file.num_rows < total:
            _append_all(job, file, total)


def _append_all(job: Job, file: ResumableFile, total: int) -> None:
    chunk_size = max(1, min(_CHUNK_TEXTS, _CHUNK_VALUES // job.values_per_text))
    # An earlier run may have ended within a chunk. It is computed again as a whole: in other
    # batches its values would have other roundings.
    num_done = file.num_rows % chunk_size
    first = file.num_rows - num_done
    left = itertools.islice(read_texts(job.input_file), first, None)
    forward, num_cut = model.forward_of(job.config, job.layers, job.pooling), 0
    with Counter("Extracting", unit="texts", total=total - first) as counter, \
            Predictor(forward, job.devices) as predictor:
        predictor.restore(job.checkpoint)
        for some in in_chunks(left, chunk_size):
            texts = Texts.of(some, job.encoding)
            num_cut += texts.num_cut
            predictions = predictor.predict(texts.source(), job.per_replica_batch_size,
                                            counter.advance)
            states = formats.as_type(predictions["states"], job.output_dtype)
            _append(job, file, texts, states, num_done)
            num_done = 0
    if num_cut:
        said = job.encoding.long_texts.describe(num_cut, total - first, job.encoding.max_seq_length)
        log.info(f"Of the texts that were left, {said}" if first else said)


def _append(job: Job, file: ResumableFile, texts: Texts, states: np.ndarray,
            num_done: int) -> None:
    """Appends the states of some texts but for the first `num_done`."""
    num_written = max(1, _WRITTEN_VALUES // job.values_per_text)
    for start in range(num_done, len(states), num_written):
        some = states[start:start + num_written]
        if job.output_format == formats.NPY:
            rows = some.tobytes()
        elif job.pooling:
            rows = formats.vector_lines(file.num_rows, some)
        else:
            tokens = map(texts.tokens, range(start, start + len(some)))
            rows = formats.token_lines(file.num_rows, tokens, some, job.layers)
        file.append(rows, len(some))

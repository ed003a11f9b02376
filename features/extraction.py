"""Extracts the features of a file of texts into another file, in bounded memory."""

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

import modeling
from encoder.encoding import Encoding
from engine import log
from engine.checkpoints import checkpoints
from engine.data import parts, text_files
from engine.data.chunks import in_chunks
from engine.data.odd_rows import OddRows
from engine.devices.devices import Devices
from engine.disk.provenance import Source
from engine.disk.resumable_file import ResumableFile, array_header
from engine.inference import Predictor
from engine.progress import Counter
from features import formats, model
from features.texts import Texts, read_texts

_CHUNK_TEXTS = 4096  # at a time, or fewer:
_CHUNK_VALUES = 2**23  # 32 MB, and 80 MB of JSON


class OpenModel(NamedTuple):
    """A model, open for any number of files. Made by `open_model`."""
    config: modeling.BertConfig
    encoding: Encoding
    checkpoint: checkpoints.Checkpoint
    layers: List[int]  # indices of layers, from 0, or from -1 backwards
    pooling: Optional[str]  # one of bert.POOLINGS, or None for a vector of each token
    predictor: Predictor

    @property
    def values_per_text(self) -> int:
        """The largest number of values of a text: of one vector, or of one for each token."""
        vectors = 1 if self.pooling else self.encoding.max_seq_length
        return vectors * len(self.layers) * self.config.hidden_size


@contextlib.contextmanager
def open_model(config: modeling.BertConfig, encoding: Encoding, checkpoint: checkpoints.Checkpoint,
               layers: List[int], pooling: Optional[str], devices: Devices) -> Iterator[OpenModel]:
    """A context with the model that gives the states of some layers."""
    with Predictor(model.forward_of(config, layers, pooling), devices) as predictor:
        predictor.restore(checkpoint)
        yield OpenModel(config, encoding, checkpoint, layers, pooling, predictor)


class Job(NamedTuple):
    """Everything that an extraction needs."""
    input_file: text_files.Path
    output_file: str
    model: OpenModel
    precision: str
    per_replica_batch_size: int
    skip_bad_lines: bool

    def facts(self) -> Dict[str, Any]:
        """Everything that determines the output, under names for people."""
        config, encoding, checkpoint, layers, pooling, _ = self.model
        return {
            "--input_file": Source(self.input_file, parts.LINES),
            "vocabulary": encoding.vocab_hash,
            "--do_lower_case": encoding.do_lower_case,
            "--max_seq_length": encoding.max_seq_length,
            "model config": config.to_dict(),
            # The index holds a checksum of every tensor.
            "checkpoint": Source(f"{checkpoint.path}.index"),
            "--precision": self.precision, "--layers": layers, "--pooling": pooling}

    def odd_rows(self) -> OddRows:
        """Counts the lines that --skip_bad_lines skips."""
        return OddRows("lines have no features", keeps_reasons=True, skips_lines=self.skip_bad_lines)


def extract(job: Job) -> None:
    """Writes the features of all texts, in their order; goes on where an interrupted run was.

    Raises:
        UserError: the input cannot be read; out of memory.
        Interrupted: SIGTERM or Ctrl-C.
    """
    total = sum(1 for _ in read_texts(job.input_file, job.odd_rows()))
    header = array_header(total, job.model.values_per_text) if formats.is_array(job.output_file) else b""
    file = ResumableFile(job.output_file, job.facts(), header=header)
    if not total:
        log.warn(f"--input_file={job.input_file} holds no texts")
    with file.completing(f"of {total:,} texts"):
        if file.num_rows < total:
            _append_all(job, file, total)


def _append_all(job: Job, file: ResumableFile, total: int) -> None:
    # Whole chunks are appended: a resumed run computes the same batches, with the same roundings.
    chunk_size = max(1, min(_CHUNK_TEXTS, _CHUNK_VALUES // job.model.values_per_text))
    num_left, odd = total - file.num_rows, job.odd_rows()
    left = odd.after(read_texts(job.input_file, odd), file.num_rows)
    encoding = job.model.encoding
    with Counter("Extracting", unit="texts", total=num_left) as counter:
        for chunk in in_chunks(left, chunk_size):
            texts = Texts.of(chunk, encoding)
            predictions = job.model.predictor.predict(
                texts.source(), job.per_replica_batch_size, counter.advance)
            rows = _rows(job, texts, predictions["states"], file.num_rows)
            if None in chunk:
                rows = formats.with_errors(rows, file.num_rows, (
                    text is None and odd.next_error() for text in chunk))
            file.append(rows, len(chunk))
    odd.report(num_left, may_be_all=True)
    encoding.report(str(job.input_file))


def _rows(job: Job, texts: Texts, states: np.ndarray, first_number: int) -> bytes:
    """What the output holds for some texts, of which the first has this number."""
    if formats.is_array(job.output_file):
        return states.tobytes()
    if job.model.pooling:
        return formats.vector_lines(first_number, states)
    tokens = map(texts.tokens, range(len(states)))
    return formats.token_lines(first_number, tokens, states, job.model.layers)

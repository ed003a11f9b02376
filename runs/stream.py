"""Texts through a model: `run` reads them, and writes what the model says of each, in their order.

Memory does not grow with the number of texts. What a command reads, computes and writes is a `Stream`.
"""

import abc
import contextlib
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np
from absl import flags

from engine import log, settings
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import device_flags, shards
from engine.cli.shards import Shard
from engine.data import text_files
from engine.data.batches import Source
from engine.data.text_files import OddRows, Unread
from engine.disk import files
from engine.disk.artifact import GrowingFile
from engine.disk.parts import ArrivingLines, ahead, in_chunks
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.model import Forward
from engine.progress import Counter
from runs.capability import Encoded

Input = Union[text_files.Path, ArrivingLines]


class Texts(NamedTuple):
    """An opened input, and how its results are written."""
    rows: Iterator[Any]  # the texts, in the stream's form
    # (number of the row, from 0; the row; its result, or {"error": why}) → its part of the output
    write: Callable[[int, Any, Any], Union[str, bytes]]
    header: Union[str, bytes] = ""  # of the output
    total: Optional[int] = None  # the number of rows, if it is known
    report: Callable[[], None] = lambda: None  # is called at the end, for warnings


class OpenModel(contextlib.ExitStack):
    """A model on the devices that flags select, open for any number of predictions.

    The first prediction builds the graph and reads the checkpoint; the end of the context frees both.

    Args:
        forward: builds the model.
        checkpoint: its variables.
        values: the flags of PredictionSettings and of devices.
    """

    def __init__(self, forward: Forward, checkpoint: Checkpoint, values: flags.FlagValues):
        super().__init__()
        self.checkpoint = checkpoint
        self._batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
        self.devices = device_flags.find_devices(values, training=False)
        self._predictor = self.enter_context(Predictor(forward, self.devices))
        self._predictor.restore(checkpoint)

    def predict(self, encoded: Encoded, advance: Callable[[int], None] = lambda count: None
                ) -> Iterable[Any]:
        """A result for each text; `advance` is called with the number of examples of each step."""
        return encoded.decode(self._predictions(encoded.source, advance))

    def _predictions(self, source: Source, advance: Callable[[int], None]) -> Dict[str, np.ndarray]:
        if not len(source.lengths):
            return {}
        return self._predictor.predict(source, self._batch_size, advance)


class Stream(OpenModel, abc.ABC):
    """An open model, and what a command does with it for any number of inputs.

    Attributes:
        title, unit: of the progress, and what it counts, in the plural.
        become: ends the warning about rows that cannot be read, see `OddRows`.
        rows: what the input consists of, in the plural.
        chunk_size: rows that are taken at a time, each with the size `size_of`.
    """
    title: str
    unit: str
    become = "cannot be read"
    rows = "texts"
    chunk_size: int

    def size_of(self, row: Any) -> int:
        """See `chunk_size`."""
        return 1

    @abc.abstractmethod
    def open(self, values: flags.FlagValues, source: Input, odd: OddRows) -> Texts:
        """Opens an input; `odd` counts the rows that cannot be read."""

    @abc.abstractmethod
    def encode(self, rows: List[Any]) -> Encoded:
        """Some rows as the model reads them."""

    @abc.abstractmethod
    def model_facts(self) -> Dict[str, Any]:
        """What identifies the model in the record of an output."""

    def facts(self, values: flags.FlagValues, shard: Optional[Shard]) -> Optional[Dict[str, Any]]:
        """What determines an output that is resumed; None for one that is written in one run."""
        return {**shards.facts_of(values, shard), **self.model_facts()} if shard else None


def run(values: flags.FlagValues, stream: Stream) -> None:
    """Answers all texts of --input_file, or of standard input.

    Results are written chunk by chunk, so that a resumed run forms the same batches and its numbers round
    the same.
    """
    shard, output_file = shards.from_flags(values), values.output_file
    files.check_output(output_file, "--output_file", [values.input_file])
    source = _source(values, shard)
    if shard:
        shards.check(values, [output_file], lambda part: stream.facts(values, part))
        output_file = shard.output(output_file)
    answer(values, stream, source, output_file, stream.facts(values, shard),
           skips_lines="skip_bad_lines" in values and values.skip_bad_lines)


def answer(values: flags.FlagValues, stream: Stream, source: Input, output_file: Optional[str],
           facts: Optional[Mapping[str, Any]] = None, *, skips_lines: bool) -> None:
    """Answers all texts of an input, see `run`.

    Args:
        output_file: default: standard output.
        facts: see `Stream.facts`.
        skips_lines: see `OddRows`.
    """
    odd = OddRows(stream.become, skips_lines=skips_lines)
    texts = stream.open(values, source, odd)
    name = stream.rows if texts.total is None else f"of {texts.total:,} {stream.rows}"
    with _opened(output_file, facts, texts.header, name) as (num_done, append):
        if num_done and num_done == texts.total:
            return  # the file is whole
        arriving = source if isinstance(source, ArrivingLines) else None
        chunks = in_chunks(itertools.islice(texts.rows, num_done, None), stream.chunk_size,
                           lambda row: 1 if isinstance(row, Unread) else stream.size_of(row), arriving)
        first = next(chunks, None)
        if first is None:
            if not num_done:
                log.warn(f"the input has no {stream.rows}")
            return
        # What could be read of each chunk, and how the model reads it.
        read = ((rows, [row for row in rows if not isinstance(row, Unread)]) for rows in itertools.chain([first], chunks))
        encoded = ((rows, some, some and stream.encode(some)) for rows, some in read)
        number = num_done
        with Counter(stream.title, unit=stream.unit,
                     total=texts.total and texts.total - num_done) as counter:
            # While a card computes, the processor reads on.
            for rows, some, of_model in encoded if arriving else ahead(encoded):
                of_some = list(stream.predict(of_model, counter.advance)) if some else []
                if len(of_some) != len(some):  # or a row would be lost
                    raise ValueError(f"{len(of_some)} results of {len(some)} {stream.rows}")
                if texts.total:
                    counter.advance(len(rows) - len(some))
                left = iter(of_some)
                results = [{"error": row.reason} if isinstance(row, Unread) else _result(next(left), odd)
                           for row in rows]
                append(texts.header[:0].join(map(texts.write, itertools.count(number), rows, results)),
                       len(rows))
                number += len(rows)
        texts.report()
        odd.report(number, may_be_all=facts is not None)


@contextlib.contextmanager
def _opened(path: Optional[str], facts: Optional[Mapping[str, Any]], header: Union[str, bytes], rows: str
            ) -> Iterator[Tuple[int, Callable[[Union[str, bytes], int], None]]]:
    """The output, which is resumed if it has facts: the number of rows that are done, and `append`."""
    if facts is None:
        with files.output(path) as file:
            file.write(header)
            yield 0, lambda lines, num_rows: print(lines, end="", file=file, flush=True)
        return
    with GrowingFile(path, facts, header).growing(rows) as output:
        yield output.num_rows, output.append


def _source(values: flags.FlagValues, shard: Optional[Shard]) -> Input:
    if values.input_file:
        path = files.require_file(values.input_file, "--input_file")
        return shard.part_of(path) if shard else path
    for name in ("text_column", "text_pair_column", "header"):
        if name in values and values[name].present:
            raise UserError(f"--{name} needs --input_file; on standard input each line is a text")
    return ArrivingLines()


def _result(result: Any, odd: OddRows) -> Any:
    """The result, or {"error": why there is none}."""
    if isinstance(result, str):
        odd.add(result)
        return {"error": result}
    return result

"""A trained model that answers many callers at a time."""

import dataclasses
import os
from typing import Any, List, Mapping, Optional, Tuple

import numpy as np
from absl import flags

from encoder import vocabulary
from engine import inference, log, settings
from engine.cli import device_flags
from engine.devices.devices import Devices
from engine.disk import files
from engine.errors import UserError
from engine.settings import setting
from runs import export, prepared
from runs.capability import AnyResult
from runs.rows import Example
from serving import session
from serving.batcher import (  # noqa: F401 (what `answer` takes and raises)
    Batcher, Closing, Deadline, Gone, Late, Overloaded)

_WARM_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may ask."""
    topic = "Limits"
    max_body_bytes: int = setting(2_000_000, "Bytes of the body of a request.", positive=True)
    max_client_batch_size: int = setting(256, "Texts, or pairs of texts, of a request.",
                                         positive=True)
    max_concurrent_requests: int = setting(
        256, "Requests that are answered at a time; those beyond are refused at once.",
        between=(1, 4096))
    timeout: float = setting(
        30.0, "Seconds that a client may take to send a request or to read its answer, and that "
        "the answer may take.", positive=True)


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """How requests are batched."""
    topic = "Batches"
    max_batch_tokens: Optional[int] = setting(
        None, "Tokens of a batch, padding included. By default 512 on the CPU, for each core, and "
        f"{inference.GPU_STEP_TOKENS:,} on cards.", positive=True)
    max_queued_tokens: int = setting(
        65536, "Tokens that may wait; requests beyond are refused at once.", positive=True)


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of the engine, batches, devices and precision."""
    flags.DEFINE_enum("engine", None, session.ENGINES, "What computes. Default: onnxruntime on a CPU, where "
                      "it is installed and can compute the model; TensorFlow for the rest, and on cards.",
                      flag_values=values)
    settings.define_flags(values, BatchSettings)
    device_flags.define(values)


class TooLong(Exception):
    """A text has more tokens than the model reads."""

    def __init__(self, index: int, tokens: int, limit: int):
        """`index`: of the text's example, from 0; `tokens` and `limit`: of the example."""
        super().__init__(f"the text has {tokens} tokens, and the model reads at most {limit}")
        self.index, self.tokens, self.limit = index, tokens, limit


class ServedModel:
    """An open model folder.

    Attributes:
        name: what clients call it.
        sha: the name of the folder of a numbered version, or else a fingerprint of the weights.
        devices: what computes.
        dtype: the type in which it computes.
        description: the content of task.json; {} for a model without.
        reader: how the model reads texts.
        tokenizer: what its vocabulary makes of texts.
        card: the model card of an export, in Markdown; "" for a training's output directory.
        max_seq_length: tokens that the model reads at a time.
        max_batch_tokens: the most tokens of a batch, padding included.
        batcher: the queue.

    Args:
        folder: the output directory of a training, or an export.
        version: its number, or "".
        values: the flags of `define_flags`.
    """

    def __init__(self, name: str, folder: str, version: str, values: flags.FlagValues, devices: Devices):
        self.name, self.devices = name, devices
        trained, self.reader, self._sessions = session.open_sessions(values.engine, folder, devices)
        self.dtype = self._sessions[0].dtype
        self.tokenizer = vocabulary.load_tokenizer(
            trained.file(vocabulary.FILE), vocabulary.read_casing(trained.folder))
        self.description: Mapping[str, Any] = trained.description() or {}
        card = os.path.join(folder, export.CARD)
        self.card = files.read_whole(card, "model card").decode("utf-8", "replace") if os.path.exists(card) else ""
        self._sample = prepared.example_of(self.reader)
        self.max_seq_length = self._sample.max_length
        self.sha = version or files.hash_of_file(trained.checkpoint.index_file)[:12]
        self._nothing = {name: rows[:0] for name, rows in self._sessions[0].run(
            prepared.features(self._sample)).items()}
        batches = settings.from_flags(values, BatchSettings)
        self.max_batch_tokens = batches.max_batch_tokens or (
            devices.max_step_tokens or inference.GPU_STEP_TOKENS)
        self._warm_up()
        num_runs = len(devices.names) * devices.concurrent_steps
        runs = [each.run for each in self._sessions] * (num_runs // len(self._sessions))
        self.batcher = Batcher(runs, self.max_batch_tokens, batches.max_queued_tokens)

    def answer(self, examples: List[Example], *, truncate: bool, deadline: Deadline
               ) -> List[AnyResult]:
        """A result for each example, in order.

        Args:
            truncate: whether to cut texts that are too long.

        Raises:
            TooLong: a text would be cut, and `truncate` is not set.
            Overloaded, Late, Gone, Closing: the request was not answered.
            UserError: the model cannot compute it.
        """
        if not examples:
            return []
        encoded = self.reader.encode(examples)
        left_out = np.asarray(encoded.num_left_out)
        if not truncate and left_out.any():
            index = int(np.flatnonzero(left_out)[0])
            raise TooLong(index, self.max_seq_length + int(left_out[index]), self.max_seq_length)
        predictions = self._nothing  # as of an empty context
        if len(encoded.source.lengths):
            predictions = self.batcher.predict(encoded.source._replace(
                length_multiple=self._sessions[0].length_multiple), deadline)
        return list(encoded.decode(predictions))

    def close(self) -> None:
        """Answers what waits, refuses the rest, and frees the memory."""
        self.batcher.close()
        for each in self._sessions:
            each.close()

    def _warm_up(self) -> None:
        lengths = {min(length, self.max_seq_length) for length in _WARM_LENGTHS}
        for each in self._sessions:
            if isinstance(each, session.OnnxSession):
                continue  # the first batch of a length takes no longer than others
            for length in sorted(lengths):
                for size in (1, max(1, self.max_batch_tokens // length)):
                    each.run(self._sample.fetch(np.zeros(size, np.int64), length))


def served_folders(folder: str) -> List[Tuple[str, str]]:
    """The folders of the versions of a model, the newest first, with their numbers; or its own, without one."""
    return [(os.path.join(folder, str(number)), str(number))
            for number in reversed(export.versions(folder))] or [(folder, "")]


def serve(name: str, folder: str, values: flags.FlagValues, devices: Devices) -> ServedModel:
    """Opens the model in a folder, or the newest of the numbered versions in it: FOLDER/1, FOLDER/2 …"""
    *newer, oldest = served_folders(folder)
    for version in newer:
        try:
            return ServedModel(name, *version, values, devices)
        except UserError as error:
            log.warn(f"{error}: the version before it is served")
    return ServedModel(name, *oldest, values, devices)

"""A trained model that answers many callers at a time, and is replaced by its newer versions."""

import contextlib
import dataclasses
import math
import os
import threading
from concurrent import futures
from typing import Any, List, Mapping, Optional, Tuple

import numpy as np
from absl import flags

from engine import inference, log, settings
from engine.cli import device_flags
from engine.data.batches import Features
from engine.devices.devices import Devices
from engine.disk import files
from engine.errors import UserError
from engine.settings import setting
from runs import export, kinds
from runs.head import AnyResult, Encoded
from runs.rows import UNREAD, Example
from serving.batcher import (  # noqa: F401 (what `answer` takes and raises)
    Batcher, Closing, Deadline, Late, Overloaded)
from serving.session import ENGINES

_WATCH_SECONDS = 5.0  # between two looks for a newer version
_WARM_LENGTHS = (8, 16, 32, 64, 128, 256, 512)

_State = Tuple[Tuple[str, int, float], ...]  # path, size and time of each file


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
    flags.DEFINE_enum("engine", "tensorflow", list(ENGINES), "What computes: onnxruntime answers a single short "
                      "text of a small model sooner, on the CPU; it needs encoder/requirements.txt.",
                      flag_values=values)
    settings.define_flags(values, BatchSettings)
    device_flags.define(values)


class TooLong(Exception):
    """A text has more tokens than the model reads."""

    def __init__(self, index: int, tokens: int, limit: int):
        """`index`: of the text's example, from 0; `tokens` and `limit`: of the example."""
        super().__init__(f"the text has {tokens} tokens, and the model reads at most {limit}")
        self.index, self.tokens, self.limit = index, tokens, limit


class Version:
    """An open model folder.

    Attributes:
        number: the name of the folder of a numbered version, or "".
        sha: that name, or else a fingerprint of the weights.
        devices, engine: what computes.
        description: the content of task.json; {} for a model without.
        reader: how the model reads texts.
        card: the model card of an export, in Markdown; "" for a training's output directory.
        card_file: the path of the card.
        max_seq_length: tokens that the model reads at a time.
        max_batch_tokens: the most tokens of a batch, padding included.
        tokens_at_a_time: the most tokens of all batches that are computed at the same time.
        batcher: the queue.
    """

    def __init__(self, folder: str, number: str, values: flags.FlagValues, devices: Devices):
        self.number, self.devices, self.engine = number, devices, values.engine
        trained, self.reader = kinds.open_reader(folder, "--model")
        self.description: Mapping[str, Any] = trained.description() or {}
        self.card_file = os.path.join(folder, export.CARD)
        self.card = _read_card(self.card_file)
        self._sample = self.reader.encode([
            UNREAD if self.reader.takes_pairs else UNREAD._replace(text_b=None)]).source
        self.max_seq_length = self._sample.max_length
        # The index holds a checksum of every tensor.
        self.sha = number or files.hash_of_file(f"{trained.checkpoint.path}.index")[:12]
        example = self.features(1, self._sample.padded_length(np.array([0])))
        self._sessions = [
            ENGINES[self.engine](self.reader.forward, trained.checkpoint, example, devices, device)
            for device in devices.names]
        self._nothing = {name: values[:0] for name, values in self._sessions[0].run(example).items()}
        asked = settings.from_flags(values, BatchSettings)
        self.max_batch_tokens = asked.max_batch_tokens or (
            devices.max_step_tokens or inference.GPU_STEP_TOKENS)
        self._warm_up()
        runs = [session.run for session in self._sessions for _ in range(devices.concurrent_steps)]
        self.tokens_at_a_time = self.max_batch_tokens * len(runs)
        self.batcher = Batcher(runs, self.max_batch_tokens, asked.max_queued_tokens)

    def features(self, size: int, length: int) -> Features:
        """Features of `size` equal examples, padded to `length`."""
        return self._sample.fetch(np.zeros(size, np.int64), length)

    def submit_sample(self, size: int, length: int) -> "futures.Future[Features]":
        """Predictions for `size` equal examples of `length` tokens, later: to measure the speed."""
        return self.batcher.submit(self._sample._replace(
            lengths=np.full(size, length), length_multiple=1,
            fetch=lambda indices, length: self.features(len(indices), length)), Deadline(math.inf))

    def count_tokens(self, examples: List[Example]) -> int:
        """The tokens that the model reads of some texts, [CLS] and [SEP] included."""
        return int(self.reader.encode(examples).source.lengths.sum())

    def predict(self, some: Encoded, deadline: Deadline) -> List[AnyResult]:
        """A result for each text; raises what `ServedModel.answer` does."""
        predictions = self._nothing  # as of an empty context
        if len(some.source.lengths):
            predictions = deadline.wait(self.batcher.submit(some.source, deadline))
        return list(some.decode(predictions))

    def close(self) -> None:
        """Answers what waits, then frees the memory."""
        self.batcher.close()
        for session in self._sessions:
            session.close()

    def _warm_up(self) -> None:
        lengths = {min(length, self.max_seq_length) for length in _WARM_LENGTHS}
        for session in self._sessions:
            for length in sorted(lengths):
                session.run(self.features(1, length))
                session.run(self.features(max(1, self.max_batch_tokens // length), length))


class ServedModel:
    """A model in a folder, or the newest of the numbered versions in it: FOLDER/1, FOLDER/2 …

    Attributes:
        name: what clients call it.
        folder: the output directory of a training, an export, or a folder of numbered versions.

    Args:
        values: the flags of `define_flags`.
        devices: what computes.

    Raises:
        UserError: there is no model that reads texts.
    """

    def __init__(self, name: str, folder: str, values: flags.FlagValues, devices: Devices):
        self.name, self.folder = name, folder
        self._values, self._devices = values, devices
        # The newest version that could not be opened, and the state of its files then.
        self._refused: Tuple[str, _State] = ("", ())
        self._stopped = threading.Event()
        self._watcher: Optional[threading.Thread] = None
        self._current = self._open_first()

    @property
    def current(self) -> Version:
        """The version that answers new requests."""
        return self._current

    def answer(self, examples: List[Example], *, truncate: bool, deadline: Deadline
               ) -> List[AnyResult]:
        """A result for each example, in order, all by the same version.

        Args:
            truncate: whether to cut texts that are too long.

        Raises:
            TooLong: a text would be cut, and `truncate` is not set.
            Overloaded, Late, Closing: the request was not answered.
            UserError: the model cannot compute it.
        """
        if not examples:
            return []
        while True:
            current = self._current
            some = current.reader.encode(examples)
            if not truncate:
                _check_length(some, current.max_seq_length)
            try:
                return current.predict(some, deadline)
            except Closing:
                if current is self._current:
                    raise  # the service ends; else a newer version has come in the meantime

    def watch(self) -> None:
        """Starts a thread that takes over newer versions as they come."""
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def take_over(self) -> bool:
        """Takes over the newest version in the folder, if it is newer than the current one.

        Requests before are answered by the earlier version, which is then closed. A version that
        cannot be opened is logged, once, and left alone until its files change: it may be copied
        still.
        """
        newest = str(max(export.versions(self.folder), default=""))
        if not self.current.number or not newest or int(newest) <= int(self.current.number):
            return False
        state = self._state(newest)
        if (newest, state) == self._refused:
            return False
        try:
            opened = self._open(newest)
        except Exception as error:  # whatever is wrong with it, the current one goes on
            if newest != self._refused[0]:
                log.warn(f"{os.path.join(self.folder, newest)} is not taken over, and version "
                         f"{self.current.number} goes on: {error or type(error).__name__}")
            self._refused = newest, state
            return False
        earlier, self._current = self._current, opened
        log.info(f"{self.name}: version {newest} replaces version {earlier.number}")
        earlier.close()
        return True

    def close(self) -> None:
        """Answers what waits, refuses the rest, and frees the memory."""
        self._stopped.set()
        if self._watcher:
            self._watcher.join()
        self._current.close()

    def _watch(self) -> None:
        while not self._stopped.wait(_WATCH_SECONDS):
            self.take_over()

    def _open_first(self) -> Version:
        numbers = sorted(export.versions(self.folder), reverse=True)
        for number in map(str, numbers):
            state = self._state(number)
            try:
                return self._open(number)
            except UserError as error:
                if number == str(numbers[-1]):
                    raise
                if not self._refused[0]:
                    self._refused = number, state
                log.warn(f"{error}: the version before it is served")
        return Version(self.folder, "", self._values, self._devices)

    def _state(self, number: str) -> _State:
        """The names, sizes and times of a version's files."""
        found = []
        for folder, _, names in os.walk(os.path.join(self.folder, number)):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):  # gone
                    found.append((path, os.path.getsize(path), os.path.getmtime(path)))
        return tuple(sorted(found))

    def _open(self, number: str) -> Version:
        return Version(os.path.join(self.folder, number), number, self._values, self._devices)


def _check_length(some: Encoded, limit: int) -> None:
    left_out = np.asarray(some.num_left_out)
    if left_out.any():
        index = int(np.flatnonzero(left_out)[0])
        raise TooLong(index, limit + int(left_out[index]), limit)


def _read_card(path: str) -> str:
    if not os.path.exists(path):
        return ""
    return files.read_whole(path, "model card").decode("utf-8", "replace")

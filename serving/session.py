"""A served model on one device, computed by TensorFlow or onnxruntime: features → predictions."""

import contextlib
import os
import tempfile
import threading
import time
from typing import Any, Iterator, List, NamedTuple, Optional, Union

import tensorflow.compat.v1 as tf

from encoder.model_files import ModelFiles
from engine import inference, log
from engine.checkpoints import onnx_file
from engine.checkpoints.onnx_file import CannotConvert
from engine.data.batches import LENGTH_MULTIPLE, Features
from engine.devices.devices import Devices
from engine.disk import artifact
from engine.errors import UserError
from runs import kinds, prepared
from runs.capability import Reader
from runs.prepared import Prepared
from serving import without_tensorflow

TENSORFLOW, ONNXRUNTIME, INT8 = ENGINES = ("tensorflow", "onnxruntime", "int8")
# Twice the threads must cut the time of a step to this share: other steps lack the cores that they use.
_LEAST_GAIN = 0.6
_TRIALS = 5
_SOON = 0.01  # seconds, after which a text is answered soon enough by one thread


class TensorFlowSession(inference.DeviceSession):
    """A model in a session of TensorFlow.

    Args:
        example: features of a batch.
        device: the logical device to run on, one of `devices.names`.

    Attributes:
        dtype: the type of its products.
        length_multiple: see `Source`.
    """
    length_multiple = LENGTH_MULTIPLE

    def __init__(self, trained: ModelFiles, reader: Reader, example: Features, devices: Devices, device: str):
        super().__init__(reader.forward, inference.mode_on(devices), example, device, devices.session_config)
        self.dtype = devices.dtype.name
        self.restore(trained.checkpoint)


class OnnxSession:
    """A model in onnxruntime on the CPU. Steps at the same time have one core each.

    Args:
        file: the model's.
        example: features of a batch of one. If one thread takes long, it is computed in trials by ever more: a
            step that is alone gets those that pay off.

    Raises also:
        CannotConvert: onnxruntime is missing, or cannot compute the model.
    """
    length_multiple = 1  # a length that it has not met yet costs nothing

    def __init__(self, file: Prepared, example: Features, devices: Devices):
        self.dtype = file.weights
        self._beside = self._alone = onnx_file.open_session(file.path, 1)
        self._names = [tensor.name for tensor in self._beside.get_inputs()]  # that it depends on
        self._fetched = [tensor.name for tensor in self._beside.get_outputs()]
        self._lock, self._num_running = threading.Lock(), 0
        threads, least = 2, self._seconds(self._alone, example)
        while least > _SOON and threads <= len(devices.names) * devices.concurrent_steps:
            more = onnx_file.open_session(file.path, threads)
            seconds = self._seconds(more, example)
            if seconds > _LEAST_GAIN * least:
                break
            self._alone, threads, least = more, 2 * threads, seconds

    def _seconds(self, session: Any, example: Features) -> float:
        def trial() -> float:
            start = time.perf_counter()
            self._computed(session, example)
            return time.perf_counter() - start

        return min(trial() for _ in range(_TRIALS))

    def _computed(self, session: Any, features: Features) -> Features:
        return dict(zip(self._fetched, session.run(
            self._fetched, {name: features[name] for name in self._names})))

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...]."""
        with self._lock:
            session = self._beside if self._num_running else self._alone
            self._num_running += 1
        try:
            return self._computed(session, features)
        finally:
            with self._lock:
                self._num_running -= 1

    def close(self) -> None:
        """Frees the weights."""
        del self._alone, self._beside


Session = Union[TensorFlowSession, OnnxSession]


class OpenSessions(NamedTuple):
    """A model that is ready to compute."""
    trained: ModelFiles
    reader: Reader
    sessions: List[Session]  # one for each device, or one of onnxruntime for all


def open_sessions(engine: Optional[str], folder: str, devices: Devices) -> OpenSessions:
    """Opens the model in a folder.

    Args:
        engine: one of ENGINES; None: onnxruntime where it is installed and can compute the model, or
            else TensorFlow.
    """
    if engine in (ONNXRUNTIME, INT8) or not engine and devices.kind == "CPU":
        try:
            if devices.kind != "CPU" or devices.dtype != tf.float32:
                raise CannotConvert("onnxruntime computes on the CPU in float32: give --num_gpus=0, and leave "
                                    "--precision out")
            with _whole(file_of(engine, folder)) as kept:
                trained, reader = kept.open()
                example = prepared.features(prepared.example_of(reader))
                return OpenSessions(trained, reader, [OnnxSession(kept, example, devices)])
        except CannotConvert as error:
            if engine:
                raise UserError(f"--engine={engine}: {error}") from error
            log.info(f"TensorFlow computes: {error}")
            if without_tensorflow.is_left_out():
                without_tensorflow.start_again()
    trained, reader = kinds.open_reader(folder, "--model")
    example = prepared.features(prepared.example_of(reader))
    return OpenSessions(trained, reader, [TensorFlowSession(trained, reader, example, devices, device)
                                    for device in inference.places(devices)])


def file_of(engine: Optional[str], folder: str) -> Prepared:
    """What onnxruntime reads."""
    return Prepared(folder, "--model", prepared.INT8 if engine == INT8 else prepared.FLOAT32)


@contextlib.contextmanager
def _whole(kept: Prepared) -> Iterator[Prepared]:
    """The model's file, which is made if it is missing; where its folder cannot be written, for this start alone."""
    if without_tensorflow.is_left_out() and kept.state().name != artifact.WHOLE:
        without_tensorflow.start_again()
    if not artifact.is_needed(kept, replaces=artifact.ODD):
        yield kept
        return
    with tempfile.TemporaryDirectory() as temporary:
        try:
            make(kept)
        except OSError as error:
            log.warn(f"{os.path.dirname(kept.path)} cannot be written ({error}): each start converts the model to "
                     "ONNX again")
            kept = kept.kept_in(temporary)
            make(kept)
        yield kept


def make(kept: Prepared) -> None:
    """Makes a model's file, with TensorFlow."""
    log.info(f"Converting the model to ONNX: {kept.path}")
    kept.make()

"""A served model on one device, computed by TensorFlow or onnxruntime: features → predictions."""

import contextlib
import glob
import os
import tempfile
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from encoder import model_files, task_json
from encoder.model_files import ModelFiles
from engine import inference, log
from engine.checkpoints import onnx_file
from engine.data.batches import Features
from engine.devices.devices import Devices
from engine.disk import artifact, files
from engine.disk.artifact import Artifact
from engine.errors import UserError
from engine.model import Forward
from engine.version import VERSION

TENSORFLOW, ONNXRUNTIME = ENGINES = ("tensorflow", "onnxruntime")
_FILE = "serving-{}.onnx"  # in the model's folder


class Served(NamedTuple):
    """A model that is served."""
    forward: Forward
    files: ModelFiles
    example: Features  # features of a batch, which give the inputs' names, types and ranks
    devices: Devices


class TensorFlowSession:
    """A model in a session of TensorFlow; any number of threads may call `run`.

    Args:
        device: the logical device to run on, one of `model.devices.names`.
    """

    def __init__(self, model: Served, device: str):
        self._is_checked = model.devices.dtype == tf.float16
        self._session, inputs, predictions = _restored(model, device)
        self._names, self._fetched = sorted(inputs), sorted(predictions)
        # With feeds, `make_callable` is `Session.run`, which takes 0.4 ms of a processor; this takes 0.06.
        self._call = self._session._make_callable_from_options(CallableOptions(
            feed=[inputs[name].name for name in self._names],
            fetch=[predictions[name].name for name in self._fetched]))

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...]."""
        predictions = dict(zip(self._fetched, self._call(*[features[name] for name in self._names])))
        if self._is_checked:
            inference.check_finite([predictions])
        return predictions

    def close(self) -> None:
        """Frees the weights."""
        self._session.close()


class OnnxSession:
    """A `TensorFlowSession` that onnxruntime computes, on all cores of the CPU and in float32.

    Raises also:
        UserError: onnxruntime is missing, or cannot compute the model; another device or precision
            is asked for.
    """

    def __init__(self, model: Served):
        if model.devices.kind != "CPU" or model.devices.dtype != tf.float32:
            raise UserError("onnxruntime computes on the CPU in float32: give --num_gpus=0, and leave "
                            "--precision out")
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError(f"onnxruntime is missing ({error}): pip install -r "
                            "serving/requirements.txt") from error
        with _converted(model) as path:
            # Threads that spin between two operations answer a step that is alone sooner, and take the
            # cores from other steps.
            self._alone, self._beside = (
                _open(onnxruntime, path, model.devices, spins) for spins in (True, False))
        self._names = [tensor.name for tensor in self._alone.get_inputs()]  # that it depends on
        self._fetched = [tensor.name for tensor in self._alone.get_outputs()]
        self._lock, self._num_running = threading.Lock(), 0

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...]."""
        with self._lock:
            session = self._beside if self._num_running else self._alone
            self._num_running += 1
        try:
            return dict(zip(self._fetched, session.run(
                self._fetched, {name: features[name] for name in self._names})))
        finally:
            with self._lock:
                self._num_running -= 1

    def close(self) -> None:
        """Frees the weights."""
        del self._alone, self._beside


Session = Union[TensorFlowSession, OnnxSession]


def open_sessions(engine: Optional[str], model: Served) -> List[Session]:
    """A session for each device, or one of onnxruntime for all.

    Args:
        engine: one of ENGINES; None: onnxruntime where it is installed and can compute the model, or
            else TensorFlow.
    """
    if engine == ONNXRUNTIME or not engine and model.devices.kind == "CPU":
        try:
            return [OnnxSession(model)]
        except UserError as error:
            if engine:
                raise UserError(f"--engine={engine}: {error}") from error
            log.info(f"TensorFlow computes: {error}")
    return [TensorFlowSession(model, device) for device in model.devices.names]


def _restored(model: Served, device: str, *, inlined: bool = False
              ) -> Tuple[tf.Session, Dict[str, tf.Tensor], Dict[str, tf.Tensor]]:
    """A session with the model's weights, the placeholders of its features, and its predictions."""
    mode = inference.mode_on(model.devices)
    mode = mode._replace(computation=mode.computation._replace(inlined=inlined))
    with tf.Graph().as_default() as graph:
        with tf.device(device), tf.variable_scope("", use_resource=True):
            inputs = {name: tf.placeholder(values.dtype, [None] * values.ndim)
                      for name, values in model.example.items()}
            predictions = model.forward(inputs, mode).predictions
        saver = tf.train.Saver()
    session = tf.Session(graph=graph, config=model.devices.session_config)
    inference.load_weights(session, saver, model.files.checkpoint)
    return session, inputs, predictions


@contextlib.contextmanager
def _converted(model: Served) -> Iterator[str]:
    """The path of the model's ONNX file, which the first start leaves in the model's folder.

    Its name has a hash of its facts. Where the folder cannot be written, each start makes a file of its own.
    """
    folder = model.files.folder
    sources = [f"{model.files.checkpoint.path}.index", *filter(os.path.exists, (
        os.path.join(folder, name) for name in (model_files.CONFIG, task_json.FILE)))]
    facts = {"version": VERSION, **{os.path.basename(path): files.hash_of_file(path) for path in sources}}
    name = _FILE.format(artifact.key_of(facts))
    kept = Artifact(os.path.join(folder, name), facts)
    if not artifact.is_needed(kept, replaces=artifact.ODD):
        yield kept.path
        return
    with tempfile.TemporaryDirectory() as temporary:
        try:
            _convert(model, kept)
        except OSError as error:
            log.warn(f"{folder} cannot be written ({error}): each start converts the model to ONNX again")
            kept = Artifact(os.path.join(temporary, name), facts)
            _convert(model, kept)
        for other in glob.glob(os.path.join(glob.escape(folder), _FILE.format("*"))):
            if other != kept.path:  # of an earlier checkpoint; another process may remove it, too
                for old in (other, f"{other}.json"):
                    with contextlib.suppress(OSError):
                        os.remove(old)
        yield kept.path


def _convert(model: Served, kept: Artifact) -> None:
    log.info(f"Converting the model to ONNX: {kept.path}")
    with kept.written() as draft:
        session, inputs, predictions = _restored(model, "/cpu:0", inlined=True)
        with session:
            graph = onnx_file.frozen(session, [tensor.name for tensor in predictions.values()])
        used = {node.name for node in graph.node}
        onnx_file.convert(
            draft, graph,
            {tensor.name: name for name, tensor in inputs.items() if tensor.op.name in used},
            {tensor.name: name for name, tensor in predictions.items()})


def _open(onnxruntime: Any, path: str, devices: Devices, spins: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are ours
    options.intra_op_num_threads = len(devices.names) * devices.concurrent_steps
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no common base
        raise UserError(f"onnxruntime {onnxruntime.__version__} cannot compute {path}: "
                        f"{log.brief(error)}") from error

"""A trained model as one frozen graph, computed by TensorFlow or onnxruntime: features → predictions."""

import os
import tempfile
from typing import Any, Dict, List, Tuple, Type, Union

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from engine import folding, inference
from engine.checkpoints import checkpoints, onnx_file
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Features
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.model import Forward

# More were not tried. On two cores of an AMD EPYC with TensorFlow 2.15, the fastest of 40 steps of a
# text of 16, 32 and 128 tokens of MiniLM took 4.4, 6.3 and 19 ms in two chains, with one thread for
# each operation, and 6.1, 10 and 34 ms in one chain. Before constants were folded, one chain with two
# threads for each operation took 8.7, 15 and 34 ms.
_MOST_CHAINS = 2


class FrozenSession:
    """A model with its weights as constants of the graph.

    The graph is built here and never changes; any number of threads may call `run`.

    Args:
        forward: the model.
        checkpoint: its weights.
        example: features of a batch, which give the inputs' names, types and ranks.
        devices: the session's configuration and the precision.
        device: the logical device to run on, one of `devices.names`.

    Raises:
        UserError: the checkpoint lacks a variable of the model.
    """

    def __init__(self, forward: Forward, checkpoint: Checkpoint, example: Features,
                 devices: Devices, device: str):
        self._is_checked = devices.dtype == tf.float16
        num_chains = min(devices.concurrent_steps, _MOST_CHAINS) if devices.kind == "CPU" else 1
        self._names, feeds, fetches = _frozen(
            forward, checkpoint, example, devices, device, num_chains)
        self._session = tf.Session(graph=feeds[0].graph, config=devices.session_config)
        self._fetched = sorted(fetches)
        # With feeds, `make_callable` is `Session.run`, which takes 0.4 ms of a processor; this takes 0.06.
        self._call = self._session._make_callable_from_options(CallableOptions(
            feed=[feed.name for feed in feeds], fetch=[fetches[name].name for name in self._fetched]))

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...].

        Raises:
            UserError: a prediction in float16 is not finite.
        """
        found = dict(zip(self._fetched, self._call(*[features[name] for name in self._names])))
        if self._is_checked:
            inference.check_finite([found])
        return found

    def close(self) -> None:
        """Frees the weights."""
        self._session.close()


class OnnxSession:
    """A `FrozenSession` that onnxruntime computes, on all cores of the CPU and in float32.

    Raises also:
        UserError: onnxruntime is missing, or cannot compute the model; another device or precision
            is asked for.
    """

    def __init__(self, forward: Forward, checkpoint: Checkpoint, example: Features,
                 devices: Devices, device: str):
        if devices.kind != "CPU" or devices.dtype != tf.float32:
            raise UserError("--engine=onnxruntime computes on the CPU in float32: give --num_gpus=0, and "
                            "leave --precision out")
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError(f"--engine=onnxruntime needs onnxruntime ({error}): pip install -r "
                            "encoder/requirements.txt") from error
        names, feeds, fetches = _frozen(forward, checkpoint, example, devices, device, num_chains=1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx_file.convert(path, feeds[0].graph.as_graph_def(),
                              {feed.name: name for name, feed in zip(names, feeds)},
                              {tensor.name: tensor.name for tensor in fetches.values()})
            try:
                self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            except Exception as error:  # its classes have no common base
                raise UserError(f"--engine=onnxruntime: onnxruntime {onnxruntime.__version__} cannot compute "
                                f"this model: {error}; leave the flag out") from error
        self._names = [tensor.name for tensor in self._session.get_inputs()]  # that it depends on
        self._fetches = {name: tensor.name for name, tensor in fetches.items()}

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...]."""
        return dict(zip(self._fetches, self._session.run(
            list(self._fetches.values()), {name: features[name] for name in self._names})))

    def close(self) -> None:
        """Frees the weights."""
        del self._session


Session = Union[FrozenSession, OnnxSession]
ENGINES: Dict[str, Type[Session]] = {"tensorflow": FrozenSession, "onnxruntime": OnnxSession}


def _frozen(forward: Forward, checkpoint: Checkpoint, example: Features, devices: Devices, device: str,
            num_chains: int) -> Tuple[List[str], List[tf.Tensor], Any]:
    """The names of the features, their placeholders, and the predictions in a graph without variables."""
    names = sorted(example)
    mode = inference.mode_on(devices)
    mode = mode._replace(computation=mode.computation._replace(inlined=True, num_chains=num_chains))
    with tf.Graph().as_default(), tf.device(device):
        inputs = {name: tf.placeholder(example[name].dtype, [None] * example[name].ndim)
                  for name in names}
        weights: Dict[str, np.ndarray] = {}
        with tf.variable_scope("", custom_getter=_reading(checkpoint, weights)):
            predictions = forward(inputs, mode).predictions
    feeds, fetches = folding.folded(
        [inputs[name] for name in names], predictions, weights, devices.session_config)
    return names, feeds, fetches


def _reading(checkpoint: Checkpoint, weights: Dict[str, np.ndarray]):
    """A variable getter that returns placeholders, and collects their values in `weights`."""
    def placeholder(getter, name: str, *args, **kwargs) -> tf.Tensor:
        checkpoints.check_shape(checkpoint, name, kwargs["shape"])
        found = tf.placeholder(tf.float32, kwargs["shape"])
        weights[found.name] = tf.train.load_variable(checkpoint.path, name)
        return found
    return placeholder

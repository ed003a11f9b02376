"""A trained model as one frozen graph in a session: features → predictions."""

from typing import Dict

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from engine import folding, inference
from engine.checkpoints import checkpoints
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Features
from engine.devices.devices import Devices
from engine.model import Forward, Mode

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
        self._names = sorted(example)
        self._is_checked = devices.dtype == tf.float16
        with tf.Graph().as_default(), tf.device(device):
            inputs = {name: tf.placeholder(example[name].dtype, [None] * example[name].ndim)
                      for name in self._names}
            weights: Dict[str, np.ndarray] = {}
            with tf.variable_scope("", custom_getter=_reading(checkpoint, weights)):
                predictions = forward(inputs, _mode(devices)).predictions
        feeds, fetches = folding.folded(
            [inputs[name] for name in self._names], predictions, weights, devices.session_config)
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


def _reading(checkpoint: Checkpoint, weights: Dict[str, np.ndarray]):
    """A variable getter that returns placeholders, and collects their values in `weights`."""
    def placeholder(getter, name: str, *args, **kwargs) -> tf.Tensor:
        checkpoints.check_shape(checkpoint, name, kwargs["shape"])
        found = tf.placeholder(tf.float32, kwargs["shape"])
        weights[found.name] = tf.train.load_variable(checkpoint.path, name)
        return found
    return placeholder


def _mode(devices: Devices) -> Mode:
    mode = inference.mode_on(devices)
    num_chains = min(devices.concurrent_steps, _MOST_CHAINS) if devices.kind == "CPU" else 1
    return mode._replace(computation=mode.computation._replace(
        inlined=True, num_chains=num_chains))

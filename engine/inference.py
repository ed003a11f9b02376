"""Predictions for all examples, computed on all replicas, in the order of the examples.

Metrics are computed on the host from these predictions. So every example counts once, whatever
the size of the set, the batch and the number of replicas, unlike with Estimator's
`eval_distribute`. Each replica has a session of its own, which is made once and serves any number of sets.
"""

import dataclasses
import queue
from concurrent import futures
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

import modeling
from engine.checkpoints import checkpoint_files, checkpoints
from engine.data import batches
from engine.data.batches import Features
from engine.data.plan import inference_plan
from engine.devices.devices import Devices, out_of_memory_explained
from engine.errors import UserError
from engine.model import INFERENCE, Forward, Mode
from engine.progress import counted
from engine.settings import setting

# The default batch of a replica: examples of full length on the CPU, tokens on a card. In smaller
# batches a card waits for the launch of its kernels.
CPU_BATCH_SIZE, GPU_STEP_TOKENS = 8, 16384


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """How to predict."""
    topic = "Prediction"
    predict_batch_size: Optional[int] = setting(
        None, "Examples of --max_seq_length tokens per replica and prediction step; more "
        f"shorter ones, up to the same number of tokens. Without a value {CPU_BATCH_SIZE}, and on "
        f"cards as many as have {GPU_STEP_TOKENS:,} tokens.", positive=True)


def mode_on(devices: Devices) -> Mode:
    """How a model infers on these devices."""
    return INFERENCE._replace(computation=modeling.Computation(
        dtype=devices.dtype, cast=_cast_when_restored, on_cards=devices.kind == "GPU"))


def places(devices: Devices) -> Sequence[str]:
    """The devices that hold the weights of a model that infers: each card; the replicas on the CPU share one's."""
    return devices.names if devices.kind == "GPU" else devices.names[:1]


class DeviceSession:
    """A model in a graph and a session of its own, on one device; any number of threads may call `run`.

    Args:
        forward, mode: the model, and how it infers.
        example: features of a batch, which give the inputs' names, types and ranks.
        device: a logical device, such as "/gpu:0".
        config: of the session.

    Attributes:
        session: that of TensorFlow.
        inputs, predictions: the tensors, by their names.
    """

    def __init__(self, forward: Forward, mode: Mode, example: Features, device: str, config: tf.ConfigProto):
        with tf.Graph().as_default() as graph, tf.device(device), tf.variable_scope("", use_resource=True):
            self.inputs = {name: tf.placeholder(values.dtype, [None] * values.ndim)
                           for name, values in sorted(example.items())}
            self.predictions = forward(self.inputs, mode).predictions
            self._saver = tf.train.Saver()
        self._is_checked = mode.computation.dtype == tf.float16
        self.session = tf.Session(graph=graph, config=config)
        # With feeds, `make_callable` is `Session.run`, which takes 0.4 ms of a processor; this takes 0.06.
        self._call = self.session._make_callable_from_options(CallableOptions(
            feed=[tensor.name for tensor in self.inputs.values()],
            fetch=[tensor.name for tensor in self.predictions.values()]))

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Reads the variables."""
        variables = self.session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        checkpoints.check_matches(checkpoint, variables)
        with checkpoint_files.reading(checkpoint.path):
            if checkpoint.is_as_stored:
                self._saver.restore(self.session, checkpoint.path)
            else:
                for variable in variables:
                    initial_value = variable.initializer.inputs[1]
                    self.session.run(variable.initializer, {initial_value: checkpoint.value(variable.op.name)})
        self.session.run(self.session.graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS))

    def run(self, features: Features) -> Features:
        """The predictions for a batch of b examples, each [b, ...]."""
        predictions = dict(zip(self.predictions, self._call(*map(features.get, self.inputs))))
        if self._is_checked:
            _check_finite(predictions)
        return predictions

    def close(self) -> None:
        """Frees the weights."""
        self.session.close()


class Predictor:
    """A model on some devices, which scores any number of sets.

    The first prediction builds the graphs; all later sets have the same features.

    Args:
        forward: the model.
        devices: the replicas.

    Attributes:
        checkpoint: the one to predict with.

    Use it as a context manager: it holds sessions.
    """

    def __init__(self, forward: Forward, devices: Devices):
        self._forward = forward
        self._devices = devices
        self._sessions: List[DeviceSession] = []
        self._restored: Optional[checkpoints.Checkpoint] = None
        self.checkpoint: Optional[checkpoints.Checkpoint] = None

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *exception) -> None:
        for session in self._sessions:
            session.close()

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Takes the variables of the next predictions from this checkpoint."""
        self.checkpoint = checkpoint

    def predict(self, source: batches.Source, per_replica_batch_size: Optional[int],
                advance: Callable[[int], None] = lambda count: None) -> Dict[str, np.ndarray]:
        """The predictions for all examples of `source`, each [n, ...], in their order; see `predict`.

        A replica takes `per_replica_batch_size` examples of full length at a time, or as many
        shorter ones as have the same number of tokens; on the CPU fewer, which is faster. None
        stands for the default of --predict_batch_size.
        """
        devices = self._devices
        if not self._sessions:
            first = np.arange(min(1, len(source.lengths)))  # none, if there is none
            example = source.fetch(first, source.max_length)
            self._sessions = [DeviceSession(self._forward, mode_on(devices), example, name, devices.session_config)
                              for name in places(devices)]
        if self._restored is not self.checkpoint:
            for session in self._sessions:
                session.restore(self.checkpoint)
            self._restored = self.checkpoint
        runs = [session.run for session in self._sessions] * (
            len(devices.names) * devices.concurrent_steps // len(self._sessions))
        return predict(runs, source, self._tokens_per_replica(per_replica_batch_size, source), advance)

    def _tokens_per_replica(self, per_replica_batch_size: Optional[int],
                            source: batches.Source) -> int:
        if per_replica_batch_size is None and self._devices.kind == "GPU":
            return max(GPU_STEP_TOKENS, source.max_length)
        tokens = (per_replica_batch_size or CPU_BATCH_SIZE) * source.max_length
        return min(tokens, self._devices.max_step_tokens or tokens)


def predict(runs: Sequence[Callable[[Features], Features]], source: batches.Source, tokens: int,
            advance: Callable[[int], None] = lambda count: None) -> Dict[str, np.ndarray]:
    """The predictions for all examples of `source`, each [n, ...], in their order.

    Rows are padded with zeros to the longest of all batches. The batches do not depend on the number of `runs`.

    Args:
        runs: compute the batches, all at the same time.
        tokens: of a batch, padding included.
        advance: is called with the number of examples of each finished batch.
    """
    plan, free = inference_plan(source.padded_lengths(), tokens), queue.Queue()
    for each in runs:
        free.put(each)

    def computed(indices: np.ndarray) -> Features:
        run = free.get()
        try:
            with out_of_memory_explained(lambda: _describe_largest_step(plan, source)):
                return run(source.fetch(indices, source.padded_length(indices)))
        finally:
            free.put(run)

    parts = []
    with futures.ThreadPoolExecutor(len(runs)) as threads:
        for indices, predictions in zip(plan, threads.map(computed, plan)):
            parts.append((indices, predictions))
            advance(len(indices))
    return in_order(parts, len(source.lengths))


def _describe_largest_step(plan: Sequence[np.ndarray], source: batches.Source) -> str:
    """Describes the step that ran out of memory: the steps with the most tokens come first."""
    size, length = max(((len(indices), source.padded_length(indices)) for indices in plan),
                       key=lambda shape: shape[0] * shape[1])
    remedy = "--max_seq_length" if size == 1 else (
        "--eval_batch_size for an evaluation, --predict_batch_size for predictions")
    return f"in a step of {counted(size, 'examples')} per replica x {length} tokens; lower {remedy}"


def _cast_when_restored(weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A copy of a weight in another type, on the weight's device; `restore` updates it.

    Cast in each step, the weights of MiniLM would take a sixth of a step of 512 tokens.
    """
    if weight.dtype == dtype:
        return weight
    copy = tf.raw_ops.VarHandleOp(
        dtype=dtype, shape=weight.shape, shared_name=tf.get_default_graph().unique_name("weight"))
    # Initializers of tables are what TensorFlow has for values that follow from the variables.
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, tf.raw_ops.AssignVariableOp(
        resource=copy, value=tf.cast(weight, dtype)))
    value = tf.raw_ops.ReadVariableOp(resource=copy, dtype=dtype)
    value.set_shape(weight.shape)
    return value


def _check_finite(predictions: Features) -> None:
    """Raises a UserError if a prediction in float16 is not finite."""
    for name, values in predictions.items():
        if not np.isfinite(values).all():
            raise UserError(f"--precision=float16: {name} of an example are not finite, since "
                            "the model has values that float16 cannot hold; leave the flag "
                            "out")


def in_order(parts: Sequence[Tuple[np.ndarray, Features]], num_examples: int
             ) -> Dict[str, np.ndarray]:
    """The predictions for all examples, each [n, ...], from those of batches.

    Args:
        parts: the indices of a batch's examples, [b], and their predictions, each [b, ...]. Rows
            are padded with zeros to the longest of all batches.
    """
    predictions: Dict[str, np.ndarray] = {}
    for name, values in parts[0][1].items() if parts else ():
        shapes = [part[name].shape[1:] for _, part in parts]
        predictions[name] = np.zeros((num_examples, *np.max(shapes, axis=0).astype(int)),
                                     values.dtype)
        for (indices, part), shape in zip(parts, shapes):
            predictions[name][(indices, *map(slice, shape))] = part[name]
    return predictions

"""Predictions for all examples, computed on all replicas, in the order of the examples.

Metrics are computed on the host from these predictions. So every example counts once, whatever
the size of the set, the batch and the number of replicas, unlike with Estimator's
`eval_distribute`. The graph and its session are built once and serve any number of sets.
"""

import dataclasses
from concurrent import futures
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from engine.checkpoints import checkpoint_files, checkpoints
from engine.data import batches
from engine.data.batches import Features
from engine.data.plan import InferenceBatch, inference_plan
from engine.devices import runtime
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
        f"shorter ones, up to the same number of tokens. By default {CPU_BATCH_SIZE}, and on cards "
        f"as many as have {GPU_STEP_TOKENS:,} tokens.", positive=True)


def mode_on(devices: Devices) -> Mode:
    """How a model infers on these devices."""
    return INFERENCE._replace(computation=modeling.Computation(
        dtype=devices.dtype, cast=_cast_when_restored, on_cards=devices.kind == "GPU"))


def load_weights(session: tf.Session, saver: tf.train.Saver, checkpoint: checkpoints.Checkpoint) -> None:
    """Reads the variables of a graph whose model infers as `mode_on` says.

    Args:
        saver: of all variables, under their own names.
    """
    variables = session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    checkpoints.check_matches(checkpoint, variables)
    with checkpoint_files.reading(checkpoint.path):
        if checkpoint.is_as_stored:
            saver.restore(session, checkpoint.path)
        else:
            for variable in variables:
                value = checkpoint.value(variable.op.name)
                for copy in getattr(variable, "values", (variable,)):  # of each replica
                    session.run(copy.initializer, {copy.initializer.inputs[1]: value})
    session.run(session.graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS))


class Predictor:
    """A model in a graph and session of its own, which scores any number of sets.

    The first prediction builds the graph; all later sets have the same features.

    Args:
        forward: the model.
        devices: the replicas.

    Attributes:
        checkpoint: the one to predict with.

    Use it as a context manager: it holds a session.
    """

    def __init__(self, forward: Forward, devices: Devices):
        self._forward = forward
        self._devices = devices
        self._session: Optional[tf.Session] = None
        self._restored: Optional[checkpoints.Checkpoint] = None
        self.checkpoint: Optional[checkpoints.Checkpoint] = None

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *exception) -> None:
        if self._session:
            self._session.close()

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Takes the variables of the next predictions from this checkpoint."""
        self.checkpoint = checkpoint

    def predict(self, source: batches.Source, per_replica_batch_size: Optional[int],
                advance: Callable[[int], None] = lambda count: None, *, as_on_one: bool = False
                ) -> Dict[str, np.ndarray]:
        """The predictions for all examples of `source`, each [n, ...], in their order.

        Rows are padded with zeros to the longest of all batches.

        A replica takes `per_replica_batch_size` examples of full length at a time, or as many
        shorter ones as have the same number of tokens; on the CPU fewer, which is faster. None
        stands for the default of --predict_batch_size.
        `advance` is called with the number of examples of each finished step; `as_on_one`: see
        `inference_plan`.
        """
        if not self._session:
            self._build(source)
        if self._restored is not self.checkpoint:
            load_weights(self._session, self._saver, self.checkpoint)
            self._restored = self.checkpoint
        self._feed.source = source
        self._feed.batches = plan = inference_plan(
            source.padded_lengths(), self._tokens_per_replica(per_replica_batch_size, source),
            len(self._devices.names), as_on_one=as_on_one)
        self._session.run(self._start_feed)
        results: Dict[int, List[Features]] = {}

        def run(_: int) -> Tuple[int, List[Features]]:  # steps finish in any order
            with out_of_memory_explained(lambda: _describe_largest_step(plan, source)):
                return self._session.run(self._fetches)

        with futures.ThreadPoolExecutor(self._devices.concurrent_steps) as threads:
            for step, predictions in threads.map(run, range(len(plan))):
                if self._devices.dtype == tf.float16:
                    check_finite(predictions)
                results[step] = predictions
                advance(len(plan[step].indices))
        return in_order([
            (part, {name: rows[:len(part)] for name, rows in of_replica.items()})
            for step, batch in enumerate(plan) for part, of_replica in zip(batch.parts, results[step])],
            len(source.lengths))

    def _build(self, source: batches.Source) -> None:
        self._feed = batches.InferenceFeed(source, len(self._devices.names),
                                           num_ready=2 * self._devices.concurrent_steps)
        with tf.Graph().as_default() as graph:
            iterator = tf.data.make_initializable_iterator(self._feed.dataset())
            self._start_feed = iterator.initializer
            step, features_of_replicas = iterator.get_next()
            self._fetches = step, _predictions(self._forward, features_of_replicas, self._devices)
            self._saver = tf.train.Saver()
        self._session = tf.Session(graph=graph, config=self._devices.session_config)

    def _tokens_per_replica(self, per_replica_batch_size: Optional[int],
                            source: batches.Source) -> int:
        if per_replica_batch_size is None and self._devices.kind == "GPU":
            return max(GPU_STEP_TOKENS, source.max_length)
        tokens = (per_replica_batch_size or CPU_BATCH_SIZE) * source.max_length
        return min(tokens, self._devices.max_step_tokens or tokens)


def _predictions(forward: Forward, features_of_replicas, devices: Devices):
    """A list with the predictions of each replica."""
    strategy, mode = devices.strategy(), mode_on(devices)

    def predict() -> Dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        replica = tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group))
        return forward(features_of_replicas[int(replica)], mode).predictions

    with strategy.scope():
        predictions = runtime.run_on_replicas(strategy, predict)
        local = {name: strategy.experimental_local_results(value)
                 for name, value in predictions.items()}
    return [{name: values[replica] for name, values in local.items()}
            for replica in range(len(devices.names))]


def _describe_largest_step(plan: Sequence[InferenceBatch], source: batches.Source) -> str:
    """Describes the step that ran out of memory: the steps with the most tokens come first."""
    size, length = max(((max(batch.sizes), source.padded_length(batch.indices)) for batch in plan),
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


def check_finite(predictions: Sequence[Features]) -> None:
    """Raises a UserError if a prediction in float16 is not finite."""
    for replica in predictions:
        for name, values in replica.items():
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

"""The training loop.

Estimator runs it under MirroredStrategy. The batches come from the plan, the update from
`optimization`. Interrupted runs resume.
"""

import contextlib
import functools
import math
from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
    Type, Union)

import tensorflow.compat.v1 as tf

import modeling
import multigpu_optimizer
import optimization
from replication import replica_copies
from engine import interruption, log
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.data.plan import WINDOW_BATCHES, TrainingPlan
from engine.devices import runtime
from engine.devices.devices import FLOAT16, Devices, dtype_of, out_of_memory_explained
from engine.errors import UserError
from engine.model import FittedLayer, Mode, Outputs, Training
from engine.training import (
    checkpoint_hook, learning, pool, step_hook, stop_together, summaries, throughput, xla)
from engine.training.course import Course
from engine.training.evaluations import Evaluate, Evaluations
from engine.training.settings import RunSettings, Schedule, TrainingSettings
from engine.workers.coordination import Peers


class Run(NamedTuple):
    """A training, and how and where it runs."""
    facts: Mapping[str, Any]  # identify the run; a resumed run must have the same
    settings: RunSettings
    devices: Devices
    training: Training
    window_batches: int = WINDOW_BATCHES  # of the plan
    batches: Sequence[Tuple[int, int]] = ()  # see `Course`; none: that of the settings from the first step on
    output_layer: Optional[FittedLayer] = None  # to start from
    # Of the encoder; None: no FLOP/s are reported, and XLA is chosen as for BERT-base.
    config: Optional[modeling.BertConfig] = None
    evaluate: Optional[Evaluate] = None  # needed for evaluation during the training
    # Called before the first step; writes the model's files besides checkpoints.
    save_description: Callable[[], None] = lambda: None
    result_files: Sequence[str] = ()  # patterns of result files that a training invalidates

    @property
    def global_batch_size(self) -> int:
        """Examples of a step, over all replicas."""
        return self.settings.global_batch_size(self.devices.num_replicas)

    @property
    def course(self) -> Course:
        """The whole training, with the steps that are done."""
        return Course(self.settings.length, self.training.num_examples,
                      self.batches or [(0, self.global_batch_size)])

    @property
    def schedule(self) -> Schedule:
        """The length of the training in steps."""
        return self.course.schedule

    def is_evaluated(self, step: int) -> bool:
        """Whether the checkpoint of a step is evaluated during the training."""
        if step >= self.schedule.num_train_steps:
            return True
        every_steps = self.settings.evaluation.eval_every_steps
        return step > 0 and (step % every_steps == 0 if every_steps else self.course.ends_epoch(step))


# Autograph is not needed here, and would wrap a UserError in an exception of its own.
@tf.autograph.experimental.do_not_convert
def train(run: Run, evaluations: Optional[Evaluations] = None,
          more_hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
    """Trains to the end of the schedule, from the newest checkpoint in the output directory.

    SIGTERM and Ctrl-C end the training after the current step, with a checkpoint.

    Args:
        evaluations: evaluates checkpoints during the training; None for no evaluations.
        more_hooks: called after the training's own hooks, for measurements.

    Raises:
        UserError: a checkpoint does not match the model; out of memory; a loss in float32 is not
            finite.
        Interrupted: SIGTERM or Ctrl-C.
    """
    settings, output_dir, last_step = (
        run.settings.training, run.settings.output_dir, run.schedule.num_train_steps)
    earlier = checkpoint_hook.recover(output_dir)
    first_step = earlier.global_step if earlier else 0
    source, peers = run.training.make_source(), run.devices.peers
    plan = run.course.plan(source, settings.seed, run.window_batches)
    source = xla.bucketed(source, plan, settings, run.devices,
                          run.config or modeling.BertConfig(vocab_size=1), last_step, output_dir)
    initial_values = checkpoints.InitialValues(
        None if earlier else run.settings.init_checkpoint, settings.seed, is_frozen=settings.freezes,
        values=run.output_layer.values if run.output_layer else {})
    reached = _throughput(run, source)
    curves = summaries.TrainingSummaries(output_dir, last_step, run.devices, reached)
    progress = step_hook.TrainingProgress(first_step, last_step, run.devices, reached)
    signals = interruption.InterruptLater()
    saver = checkpoint_hook.SaveHook(
        output_dir, settings.save_checkpoints_steps, settings.keep_checkpoint_max, signals, evaluations, peers)
    listeners = [curves.add, progress.add]
    if run.training.baseline and peers.is_chief:
        listeners.append(learning.LearningCheck(
            output_dir, settings, run.schedule, plan, run.training.baseline,
            bool(run.settings.init_checkpoint)).add)
    if settings.precision != FLOAT16:  # which skips such a step instead
        listeners.insert(0, functools.partial(_check_loss, saver.kept))
    hooks = [_ModelCheck(initial_values, earlier), step_hook.StepHook(
        first_step, run.global_batch_size, listeners, run.training.loss_unit), saver, *more_hooks]
    if source.buckets is not None and runtime.SHARES_PROGRAMS:
        hooks.insert(0, xla.CompileAhead(
            xla.first_steps(source, plan, range(first_step, last_step)), functools.partial(
                batches.training_share, source, plan, run.devices.own_replicas,
                settings.examples_per_replica)))
    if peers.others:  # first of all: it ends a worker whose session is made anew
        hooks.insert(0, stop_together.SharedSignals(signals, peers))
    estimator = tf.estimator.Estimator(_model_fn(run, source, initial_values), config=_config(run))

    def input_fn() -> tf.data.Dataset:
        return batches.training_dataset(
            source, plan, replicas=run.devices.own_replicas, first_step=first_step,
            last_step=last_step, per_replica_batch_size=settings.examples_per_replica)

    with signals, curves, progress, out_of_memory_explained(lambda: _describe_step(
            saver.step or first_step, source, plan, settings) + saver.kept()), \
            _explained_end(signals, saver, last_step, peers):
        estimator.train(input_fn, hooks=hooks, max_steps=last_step)


def _throughput(run: Run, source: batches.Source) -> throughput.Throughput:
    if not run.config:
        return throughput.Throughput()
    settings = run.settings.training
    flops = throughput.flops_of_training(
        run.config, source.lengths if source.encoded is None else source.encoded,
        settings.freeze_layers)
    return throughput.Throughput(
        flops.sum() / len(source.lengths), throughput.peak(run.devices, settings.precision))


def _check_loss(kept: Callable[[], str], step: step_hook.Step) -> None:
    """Ends the training at a loss that is not finite. `kept` says what was saved before."""
    if not math.isfinite(step.loss):
        raise UserError(
            f"the loss of step {step.number} is {step.loss}, not a number to learn from: lower "
            "--learning_rate, or look for examples that the loss cannot take; " + kept())


@contextlib.contextmanager
def _explained_end(signals: interruption.InterruptLater, saver: checkpoint_hook.SaveHook,
                   last_step: int, peers: Peers) -> Iterator[None]:
    """Raises Interrupted after the step in which a signal was received."""
    try:
        yield
    except interruption.Interrupted:
        if not signals.received:
            raise
    except stop_together.ERRORS_OF_LOSS as error:
        stop_together.explain(error, peers)
        raise
    if signals.received:
        raise interruption.Interrupted(
            signals.received, f"{saver.keeper} has a checkpoint at step "
            f"{saver.saved_step} of {last_step}; the same command resumes from there")


def _describe_step(step: int, source: batches.Source, plan: TrainingPlan,
                   settings: TrainingSettings) -> str:
    """The size of the step after `step`, and how to make it smaller, for `out_of_memory_explained`."""
    return (f"in training step {step + 1}: {settings.train_batch_size} examples per replica at a "
            f"time x {source.padded_length(plan.global_batch(step))} tokens; divide "
            "--train_batch_size and multiply --gradient_accumulation_steps by the same number for "
            "the same step in less, or set --recompute_layers or a smaller --max_seq_length; ")


class _Gradients:
    """The loss and the gradients of a replica's batch.

    Attributes:
        variables: of each gradient; the same for all replicas, like the other attributes.
        loss_scale: by which the gradients are multiplied, or None.
        has_pool: whether the loss is that of a pool.
    """
    variables: List[tf.Variable]
    loss_scale: Optional[optimization.LossScale]
    has_pool: bool

    def __init__(self, run: Run, initial_values: checkpoints.InitialValues, is_compiled: bool):
        self._forward = run.training.forward
        self._settings = run.settings.training
        self._computation = modeling.Computation(
            dtype=dtype_of(self._settings.precision),
            recompute=self._settings.recompute_layers, compiled=is_compiled,
            on_cards=run.devices.kind == "GPU")
        self._initial_values = initial_values

    def __call__(self, features: Dict[str, tf.Tensor], step: tf.Tensor, replica: tf.Tensor
                 ) -> Tuple[tf.Tensor, List[multigpu_optimizer.Gradient]]:
        settings = self._settings
        micro_batches = settings.gradient_accumulation_steps

        def outputs_of(micro_batch) -> Outputs:
            part = features
            if micro_batches > 1:
                part = _micro_batch(features, micro_batch, settings.train_batch_size)
            seed = _dropout_seed(settings.seed, replica, step, micro_batch)
            with self._initial_values.scope():
                return self._forward(part, Mode(True, seed, self._computation))

        self.loss_scale = optimization.LossScale.create() if settings.scales_loss else None
        loss_of = pool.Loss(outputs_of, micro_batches, replica)
        loss, pairs = optimization.mean_gradients(
            loss_of, micro_batches, self.loss_scale, compiled=self._computation.compiled)
        self.variables = [variable for _, variable in pairs]
        self.has_pool = loss_of.pool is not None
        return loss, [gradient for gradient, _ in pairs]


def _model_fn(run: Run, source: batches.Source, initial_values: checkpoints.InitialValues):
    settings, devices, course = run.settings.training, run.devices, run.course
    # Of the word embeddings' gradient, see AdamWeightDecayOptimizer: it has one for each token, or all.
    most_rows = None if run.training.ties_embeddings else settings.examples_per_replica * source.most_tokens
    is_compiled = source.buckets is not None
    gradients_of = _Gradients(run, initial_values, is_compiled)
    on_replica = replica_copies.CopiedOperations(gradients_of, lambda: list(map(
        replica_copies.handle_of, tf.global_variables() + tf.local_variables())))

    def model_fn(features, labels, mode):
        step = step_hook.completed_steps()
        features = {name: _on_card(values) for name, values in features.items()}
        loss, gradients = on_replica(
            features, step, runtime.replica_number(devices.own_replicas.start))
        gradients = list(zip(gradients, gradients_of.variables))
        if is_compiled:
            xla.note(features, step, gradients, one_by_one=(
                gradients_of.has_pool or settings.gradient_accumulation_steps > 1
                or settings.recompute_layers or settings.freeze_layers > 0))
        train_op = optimization.create_train_op(
            gradients, settings.learning_rate, *course.nominal, place=course.place,
            optimizer=settings.optimizer, layer_lr_decay=settings.layer_lr_decay,
            lr_schedule=settings.lr_schedule, min_lr_ratio=settings.min_lr_ratio,
            loss_scale=gradients_of.loss_scale, transfer_dtype=tf.as_dtype(settings.transfer),
            most_rows=most_rows, compiled=is_compiled and xla.compiles_update(devices),
            bias_correction=settings.adam_bias_correction, epsilon=settings.adam_epsilon)
        _skip_report_of_uninitialized_variables()
        if devices.peers.others:
            # After the gradients: all transfers have one order on all machines.
            with tf.control_dependencies([train_op]):
                stop_together.report(loss)
        else:
            step_hook.report(loss)
        # Estimator ends a training on a NaN loss, even if the step was skipped. So it gets a loss
        # of 0; `_check_loss` checks the true one.
        return tf.estimator.EstimatorSpec(mode, loss=tf.zeros_like(loss), train_op=train_op)
    return model_fn


def _on_card(values: tf.Tensor) -> tf.Tensor:
    """Casts int32 to int64: cards slice and reshape int32 in the host's memory."""
    return tf.cast(values, tf.int64) if values.dtype == tf.int32 else values


def _micro_batch(features: Dict[str, tf.Tensor], index: Union[int, tf.Tensor],
                 size: int) -> Dict[str, tf.Tensor]:
    def rows(values: tf.Tensor) -> tf.Tensor:
        part = values[index * size:(index + 1) * size]
        part.set_shape([size, *values.shape[1:]])
        return part
    return {name: rows(values) for name, values in features.items()}


def _dropout_seed(seed: int, replica: tf.Tensor, step: tf.Tensor,
                  micro_batch: Union[int, tf.Tensor]) -> tf.Tensor:
    """A seed [2], different for each run's seed, replica, step and micro-batch."""
    with tf.device("/cpu:0"):  # random kernels read their seeds in host memory
        # No collisions with fewer than 2**20 replicas and 2**40 steps.
        stream = seed * 2**20 + tf.cast(replica, tf.int64)
        position = step + tf.cast(micro_batch, tf.int64) * 2**40
        return tf.stack([stream, position])


def _skip_report_of_uninitialized_variables() -> None:
    """Skips Estimator's check that all variables are initialized, since here they always are.

    This saves a node per variable and replica, and running them twice at start-up.
    """
    for collection in (tf.GraphKeys.READY_OP, tf.GraphKeys.READY_FOR_LOCAL_INIT_OP):
        if not tf.get_collection(collection):
            with tf.device("/cpu:0"):  # where strings live
                tf.add_to_collection(collection, tf.constant([], tf.string))


def _config(run: Run) -> tf.estimator.RunConfig:
    # Estimator's own hooks are off: they would save a checkpoint before the first step, and the
    # graph with every checkpoint. The hooks of `train` save, write summaries and log instead.
    strategy, session_config, session_target = run.devices.training_strategy()
    replica_copies.copy_variables(strategy)
    config = tf.estimator.RunConfig(
        model_dir=run.settings.output_dir,
        tf_random_seed=run.settings.training.seed,
        train_distribute=strategy,
        session_config=session_config,
        keep_checkpoint_max=0,  # all: the hook removes the surplus
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        log_step_count_steps=None)
    config._master = session_target  # otherwise only read from TF_CONFIG
    return config


class _ModelCheck(tf.train.SessionRunHook):
    """Checks the model against the checkpoint it starts from, before the session is created."""

    def __init__(self, initial_values: checkpoints.InitialValues,
                 earlier: Optional[checkpoints.Checkpoint]):
        self._initial_values = initial_values
        self._earlier = earlier

    def begin(self) -> None:
        variables, saver = tf.global_variables(), _Saver
        if self._earlier:
            saver = self._check_earlier(variables)
            log.info(f"Resuming from {self._earlier.describe()}")
        elif self._initial_values.checkpoint:
            self._report_warm_start()
        tf.get_collection_ref(tf.GraphKeys.SAVERS)[:] = [saver(variables)]
        _assign_copies(variables)

    def _check_earlier(self, variables: Sequence[tf.Variable]) -> Type["_Saver"]:
        """Returns what restores the earlier checkpoint."""
        missing = {variable.op.name for variable in variables}.difference(self._earlier.shapes)
        if missing.intersection(optimization.LossScale.NAMES):
            raise UserError(f"{self._earlier.describe()} has no loss scale, and float16 cannot begin "
                            "in the middle of a run: resume it with the run's own --precision and "
                            "--gradient_transfer, or start a new one from it (--init_checkpoint)")
        if any(name.endswith(checkpoints.SLOT_SUFFIXES) for name in missing):
            raise UserError(f"{self._earlier.describe()} lacks moments of variables, as if they were "
                            "frozen: resume it with the run's own --freeze_layers and "
                            "--freeze_embeddings, or start a new one from it (--init_checkpoint)")
        if multigpu_optimizer.UPDATES not in missing:
            checkpoints.check_matches(self._earlier, variables)
            return _Saver
        checkpoints.check_matches(self._earlier, _without_updates(variables))
        return _SaverWithoutUpdates

    def _report_warm_start(self) -> None:
        values, path = self._initial_values, self._initial_values.checkpoint.path
        log.info(f"Initialized {len(values.restored)} variables from {path}")
        if values.drawn:
            log.info(f"  not in the checkpoint, initialized at random: "
                     f"{', '.join(values.drawn)}")
        if values.unused():
            log.info(f"  in the checkpoint, not in the model: {', '.join(values.unused())}")


class _Saver(tf.train.Saver):
    """Saves and restores the first replica's variables.

    TensorFlow's own has a node, made in Python, for each copy of each variable.
    """

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__({variable.op.name: _copies(variable)[0] for variable in variables},
                         sharded=True, max_to_keep=0, save_relative_paths=True)


class _SaverWithoutUpdates(_Saver):
    """Restores a checkpoint without the number of updates, which then starts at the checkpoint's step."""

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__(variables)
        counter, = set(variables).difference(_without_updates(variables))
        self._others = _Saver(_without_updates(variables))
        self._start = counter.assign(tf.cast(tf.train.get_global_step(), tf.float32))

    def restore(self, sess: tf.Session, save_path: str) -> None:
        """Restores what the checkpoint has; it may be a later one, which this run has saved."""
        if multigpu_optimizer.UPDATES in checkpoints.describe(save_path).shapes:
            super().restore(sess, save_path)
        else:
            self._others.restore(sess, save_path)
            sess.run(self._start)


def _assign_copies(variables: Sequence[tf.Variable]) -> None:
    """Fills the copies on other replicas, after variables are initialized or restored."""
    with tf.control_dependencies([variable.initializer for variable in tf.local_variables()]):
        # The initializers of tables are part of the local initialization.
        tf.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS).extend(
            replica_copies.assignments(map(_copies, [*variables, *tf.local_variables()])))


def _copies(variable: tf.Variable) -> Tuple[tf.Variable, ...]:
    return tf.distribute.get_strategy().experimental_local_results(variable)


def _without_updates(variables: Iterable[tf.Variable]) -> List[tf.Variable]:
    return [variable for variable in variables if variable.op.name != multigpu_optimizer.UPDATES]

"""The steps of a training.

Estimator takes them under MirroredStrategy. The batches come from the plan, the update from
`optimization`. Interrupted runs resume.
"""

import contextlib
import functools
import math
from typing import (
    Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

import tensorflow.compat.v1 as tf

import modeling
import optimization
from replication import replica_copies
from engine import interruption
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.data.plan import WINDOW_BATCHES, TrainingPlan
from engine.devices import runtime
from engine.devices.devices import FLOAT16, NCCL, Devices, dtype_of, out_of_memory_explained
from engine.errors import UserError
from engine.model import FittedLayer, Mode, Outputs, Training
from engine.training import (
    checkpoint_hook, learning, pool, step_hook, stop_together, summaries, throughput, xla)
from engine.training.course import Course
from engine.training.evaluations import Evaluate, Evaluations
from engine.training.settings import RunSettings, Schedule, TrainingSettings


class Run(NamedTuple):
    """A training, and how and where it runs."""
    facts: Mapping[str, Any]  # identify the run; a resumed run must have the same
    settings: RunSettings
    devices: Devices
    data: Training
    window_batches: int = WINDOW_BATCHES  # of the plan
    batches: Sequence[Tuple[int, int]] = ()  # see `Course`; none: that of the settings from the first step on
    output_layer: Optional[FittedLayer] = None  # to start from
    config: Optional[modeling.BertConfig] = None  # of the encoder; None: no FLOP/s are reported
    evaluate: Optional[Evaluate] = None  # needed for evaluation during the training
    dev_set: Optional[str] = None  # the hash of the set that judges it; None: there is none
    # Called before the first step; writes the model's files besides checkpoints.
    save_description: Callable[[], None] = lambda: None
    result_files: Sequence[str] = ()  # names of result files that a training invalidates
    replaced: Callable[[], None] = lambda: None  # called when the first checkpoint is saved

    @property
    def global_batch_size(self) -> int:
        """Examples of a step, over all replicas."""
        return self.settings.global_batch_size(self.devices.num_replicas)

    @property
    def course(self) -> Course:
        """The whole training, with the steps that are done."""
        return Course(self.settings.length, self.data.num_examples,
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
def take_steps(run: Run, evaluations: Optional[Evaluations] = None,
               more_hooks: Sequence[tf.train.SessionRunHook] = ()) -> None:
    """Takes all steps to the end of the schedule, from the newest checkpoint in the output directory.

    SIGTERM and Ctrl-C end the training after the current step, with a checkpoint.

    Args:
        evaluations: evaluates checkpoints during the training; None for no evaluations.
        more_hooks: called after the training's own hooks, for measurements.

    Raises:
        UserError: a checkpoint does not match the model; out of memory; a loss in float32 is not
            finite.
        Interrupted: SIGTERM or Ctrl-C.
    """
    output_dir, last_step, devices = run.settings.output_dir, run.schedule.num_train_steps, run.devices
    earlier = checkpoint_hook.recover(output_dir)
    first_step = earlier.global_step if earlier else 0
    source, plan = _examples(run)
    start = None if earlier else run.settings.init_checkpoint
    if start and run.output_layer:
        start = start.with_values(run.output_layer.values)
    initial_values = checkpoints.InitialValues(
        start, run.settings.training.seed, is_frozen=run.settings.training.freezes)
    reached = _throughput(run, source)
    curves = summaries.TrainingSummaries(output_dir, last_step, devices, reached)
    progress = step_hook.TrainingProgress(first_step, last_step, devices, reached)
    stalled = step_hook.StallWarning()
    signals = interruption.InterruptLater(is_shared=bool(devices.peers.others))
    saver = checkpoint_hook.SaveHook(
        run.settings, first_step, signals, evaluations, run.is_evaluated, devices.peers, run.replaced)

    def hooks_of(replicas: Sequence[step_hook.Replica]) -> List[tf.train.SessionRunHook]:
        hooks = [
            # Before hooks that take long after a step.
            devices.all_reduce == NCCL and stalled,
            # Before anything works in a session that is made anew.
            stop_together.OneSession(devices.peers),
            # All workers know of a signal before the saver stops for it.
            devices.peers.others and stop_together.SharedSignals(signals, replicas[0].signals),
            # Before the saver, which takes from the graph what this one puts there to save and restore.
            checkpoint_hook.RestoreHook(initial_values, earlier),
            # Before the saver: what the listeners write of a step is on disk before its checkpoint, and a
            # step that they refuse is not saved.
            step_hook.StepHook(replicas, first_step, run.global_batch_size,
                               _listeners(run, plan, curves, progress, saver), run.data.loss_unit),
            # After all that belongs to a step: saves it, evaluates it and decides whether it is the last.
            saver,
            # They measure steps that are done and saved.
            *more_hooks]
        return list(filter(None, hooks))

    estimator = tf.estimator.Estimator(
        _model_fn(run, source, initial_values, hooks_of), config=_config(run))
    with curves, progress, stalled, _explained_end(run, signals, saver, source, plan):
        estimator.train(lambda: batches.training_dataset(
            source, plan, replicas=devices.own_replicas, first_step=first_step, last_step=last_step,
            per_replica_batch_size=run.settings.training.examples_per_replica), max_steps=last_step)


def _examples(run: Run) -> Tuple[batches.Source, TrainingPlan]:
    """What the training reads, and in which order."""
    settings = run.settings.training
    source = run.data.make_source()._replace(dynamic_padding=settings.dynamic_padding)
    plan = run.course.plan(source, settings.seed, run.window_batches)
    source = run.data.complete(source, run.course.examples(plan))
    return xla.bucketed(source, settings, run.devices, run.schedule.num_train_steps, run.settings.output_dir), plan


def _listeners(run: Run, plan: TrainingPlan, curves: summaries.TrainingSummaries,
               progress: step_hook.TrainingProgress, saver: checkpoint_hook.SaveHook
               ) -> List[Callable[[step_hook.Step], None]]:
    """Who is told of each step, in this order."""
    settings = run.settings.training
    listeners = [
        # Before anyone takes note of a loss that ends the training; float16 skips such a step instead.
        settings.precision != FLOAT16 and functools.partial(_check_loss, saver.kept),
        # Before the check of what is learnt, which reads the curves.
        curves.add,
        # Before the warning of that check, which thus stands below the step that it is about.
        progress.add,
        # Last, with all that is known of the step.
        run.data.baseline and run.devices.peers.is_chief and learning.LearningCheck(
            run.settings.output_dir, settings, run.schedule, plan, run.data.baseline,
            bool(run.settings.init_checkpoint), bool(run.data.fit)).add]
    return list(filter(None, listeners))


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
def _explained_end(run: Run, signals: interruption.InterruptLater, saver: checkpoint_hook.SaveHook,
                   source: batches.Source, plan: TrainingPlan) -> Iterator[None]:
    """Holds signals until a step ends; turns them, a full memory and the loss of a worker into errors that say so."""
    def size() -> str:
        return _describe_step(saver.step, source, plan, run.settings.training) + saver.kept()

    try:
        # Memory first: of a full card and of a lost worker, TensorFlow raises the same error.
        with signals, out_of_memory_explained(size):
            yield
    except interruption.Interrupted:
        if not signals.received:
            raise
    except stop_together.ERRORS_OF_LOSS as error:
        stop_together.explain(error, run.devices.peers)
        raise
    if signals.received:
        raise interruption.Interrupted(
            signals.received, f"{saver.keeper} has a checkpoint at step "
            f"{saver.saved_step} of {run.schedule.num_train_steps}; the same command resumes from there")


def _describe_step(step: int, source: batches.Source, plan: TrainingPlan,
                   settings: TrainingSettings) -> str:
    """The size of the step after `step`, and how to make it smaller, for `out_of_memory_explained`."""
    return (f"in training step {step + 1}: {settings.train_batch_size} examples per replica at a "
            f"time x {source.padded_length(plan.global_batch(step))} tokens; divide "
            "--train_batch_size and multiply --gradient_accumulation_steps by the same number for "
            "the same step in less, or set --recompute_layers or a smaller --max_seq_length; ")


def _gradients_of(run: Run, initial_values: checkpoints.InitialValues, is_compiled: bool):
    """A function from a replica's batch to its loss and gradients.

    The gradients are in the order of the trainable variables; None where the loss does not depend on one.
    """
    settings = run.settings.training
    micro_batches = settings.gradient_accumulation_steps
    computation = modeling.Computation(
        dtype=dtype_of(settings.precision), recompute=settings.recompute_layers, compiled=is_compiled,
        on_cards=run.devices.kind == "GPU")

    def gradients_of(features: Dict[str, tf.Tensor], step: tf.Tensor, replica: tf.Tensor,
                     *loss_scale: tf.Tensor):
        def outputs_of(micro_batch) -> Outputs:
            part = features
            if micro_batches > 1:
                part = _micro_batch(features, micro_batch, settings.train_batch_size)
            seed = _dropout_seed(settings.seed, replica, step, micro_batch)
            with initial_values.scope():
                return run.data.forward(part, Mode(True, seed, computation))

        loss, pairs = optimization.mean_gradients(
            pool.Loss(outputs_of, micro_batches, replica), micro_batches, *loss_scale, compiled=is_compiled)
        return loss, [gradient for gradient, _ in pairs]
    return gradients_of


def _model_fn(run: Run, source: batches.Source, initial_values: checkpoints.InitialValues,
              hooks_of: Callable[[Sequence[step_hook.Replica]], List[tf.train.SessionRunHook]]):
    settings, devices, course = run.settings.training, run.devices, run.course
    # Of the word embeddings' gradient, see AdamWeightDecayOptimizer: it has one for each token, or all.
    most_rows = None if run.data.ties_embeddings else settings.examples_per_replica * source.most_tokens
    is_compiled = source.buckets is not None
    on_replica = replica_copies.CopiedOperations(
        _gradients_of(run, initial_values, is_compiled), lambda: list(map(
            replica_copies.handle_of, tf.global_variables() + tf.local_variables())))

    def model_fn(features, labels, mode):
        completed = step_hook.completed_steps()
        features = {name: _on_card(values) for name, values in features.items()}
        loss_scale = optimization.LossScale.create() if settings.scales_loss else None
        loss, gradients = on_replica(
            features, completed, runtime.replica_number(devices.own_replicas.start),
            *([tf.convert_to_tensor(loss_scale.value)] if loss_scale else []))
        update = optimization.create_update(
            list(zip(gradients, tf.trainable_variables())), settings.learning_rate, *course.nominal, place=course.place,
            optimizer=settings.optimizer, layer_lr_decay=settings.layer_lr_decay,
            lr_schedule=settings.lr_schedule, min_lr_ratio=settings.min_lr_ratio,
            loss_scale=loss_scale, transfer_dtype=tf.as_dtype(settings.transfer),
            most_rows=most_rows, compiled=is_compiled and xla.compiles_update(devices),
            bias_correction=settings.adam_bias_correction, epsilon=settings.adam_epsilon)
        _skip_report_of_uninitialized_variables()
        signals = None
        if devices.peers.others:
            # After the gradients: all transfers have one order on all machines.
            with tf.control_dependencies([update.operation]):
                mean_loss, signals = stop_together.mean_loss(loss)
        else:
            mean_loss = step_hook.mean_over_replicas(loss)
        replica = step_hook.Replica(completed, update, mean_loss, signals)
        # Estimator ends a training on a NaN loss, even if the step was skipped. So it gets a loss
        # of 0; `_check_loss` checks the true one. Of the hooks it takes the first replica's.
        return tf.estimator.EstimatorSpec(
            mode, loss=tf.zeros_like(loss), train_op=update.operation,
            training_hooks=tf.distribute.get_replica_context().merge_call(
                lambda strategy, replica: hooks_of(strategy.experimental_local_results(replica)),
                args=(replica,)))
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
    # graph with every checkpoint. The hooks of `take_steps` save, write summaries and log instead.
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

"""The training loop: the only EstimatorSpec, on every replica.

Estimator and MirroredStrategy run it; the batches come from the plan, the update from
`optimization`, and a run that was interrupted goes on where it was.
"""

import os
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

import modeling
import optimization
from engine import checkpoints, interruption, log, memory
from engine.data import batches
from engine.data.plan import TrainingPlan
from engine.devices import Devices
from engine.errors import UserError
from engine.model import Forward, Mode
from engine.training import checkpoint_hook, progress_hook, summaries, xla_log
from engine.training.evaluations import Evaluations


MOST_STEPS = 2**31 - 1  # of a training; nobody gets that far


class TrainingSettings(NamedTuple):
    """How to train, whatever is learned."""
    output_dir: str
    num_train_steps: int  # at which training ends, steps of earlier runs included
    warmup_steps: int
    learning_rate: float  # peak of the schedule
    optimizer: str  # a key of optimization.OPTIMIZERS
    layer_lr_decay: float  # see optimization.layer_factor
    per_replica_batch_size: int  # what a replica takes at a time
    gradient_accumulation_steps: int  # so many times in a step
    seed: int  # of initial values, order and dropout
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    xla: bool  # compile the encoder's layers
    fp16: bool  # mixed precision, with a dynamic loss scale
    recompute_layers: bool  # keep no activations within an encoder layer


def count_steps(num_examples: int, num_epochs: float, global_batch_size: int) -> int:
    """Steps of `num_epochs` over the examples, each over all replicas; 1 to MOST_STEPS.

    Raises:
        UserError: not one batch can be filled, or there would be more steps.
    """
    steps = num_examples * num_epochs / global_batch_size
    if steps < 1:
        raise UserError(
            f"{num_examples} examples x {num_epochs:g} epochs do not fill one batch of "
            f"{global_batch_size} over all replicas; lower --train_batch_size or "
            "--gradient_accumulation_steps, or use fewer replicas")
    if not steps <= MOST_STEPS:
        raise UserError(
            f"{num_examples} examples x {num_epochs:g} epochs, {global_batch_size} in a step, are "
            f"more than {MOST_STEPS:,} steps; lower --num_train_epochs")
    return int(steps)


# Autograph, which has nothing to do here, would bury a UserError in frames of its own.
@tf.autograph.experimental.do_not_convert
def train(forward: Forward, source: batches.Source, devices: Devices,
          settings: TrainingSettings, init_checkpoint: Optional[checkpoints.Checkpoint],
          evaluations: Optional[Evaluations] = None) -> None:
    """Trains to `settings.num_train_steps`, from the newest checkpoint in the output directory.

    Args:
        init_checkpoint: what a new run's variables start from, where it has them. A run
            that goes on does not need it.
        evaluations: of the checkpoints on the way, where there are to be any.

    SIGTERM and Ctrl-C end it after the step that they meet, with a checkpoint.

    Raises:
        UserError: the checkpoints do not fit the model; the memory does not suffice.
        Interrupted: by one of those signals.
    """
    if settings.fp16 and devices.kind == "CPU":
        log.warn("--fp16 makes nothing faster on the CPU; it is for GPUs with tensor cores")
    os.makedirs(settings.output_dir, exist_ok=True)
    checkpoint_hook.remove_remnants(settings.output_dir)
    earlier = checkpoints.latest(settings.output_dir)
    first_step = earlier.global_step if earlier else 0
    examples_per_replica = settings.per_replica_batch_size * settings.gradient_accumulation_steps
    global_batch_size = examples_per_replica * devices.num_replicas
    plan = TrainingPlan(source.lengths, global_batch_size, settings.seed)
    source = source.bucketed() if settings.xla else source

    def is_evaluated(step: int) -> bool:
        return evaluations is not None and step > 0 and _is_due(step, evaluations, plan, settings)

    if earlier and is_evaluated(first_step) and evaluations.lacks(first_step):
        evaluations.run(earlier)  # of a run that ended between checkpoint and evaluation
    if evaluations and evaluations.is_patience_used_up():
        return

    def input_fn() -> tf.data.Dataset:
        return batches.training_dataset(
            source, plan, num_replicas=devices.num_replicas,
            per_replica_batch_size=examples_per_replica,
            first_step=first_step, last_step=settings.num_train_steps)

    initial_values = checkpoints.InitialValues(None if earlier else init_checkpoint, settings.seed)
    estimator = tf.estimator.Estimator(
        _model_fn(forward, initial_values, settings), config=_run_config(devices, settings))
    curves = summaries.TrainingSummaries(
        settings.output_dir, source, plan, first_step=first_step,
        num_train_steps=settings.num_train_steps,
        save_checkpoints_steps=settings.save_checkpoints_steps)
    shown = progress_hook.TrainingProgress(
        first_step, settings.num_train_steps, global_batch_size)
    signals = interruption.Deferred()
    saver = checkpoint_hook.SaveHook(settings.output_dir, settings.save_checkpoints_steps,
                            settings.keep_checkpoint_max, signals, evaluations, is_evaluated)
    hooks = [_ModelCheck(initial_values, earlier, init_checkpoint), curves, saver, shown]
    if settings.xla:
        hooks.append(xla_log.CompilationLog(source, plan, first_step))

    with signals, curves, shown, memory.explained(
            lambda: _describe_step(saver.step or first_step, source, plan, settings)):
        _run(estimator, input_fn, hooks, signals, saver, settings)


def _run(estimator: tf.estimator.Estimator, input_fn: Callable[[], tf.data.Dataset],
         hooks: Sequence[tf.train.SessionRunHook], signals: interruption.Deferred,
         saver: checkpoint_hook.SaveHook, settings: TrainingSettings) -> None:
    """Trains to the end, or to that of the step in which a signal came, and raises then."""
    try:
        estimator.train(input_fn, hooks=hooks, max_steps=settings.num_train_steps)
    except interruption.Interrupted:
        if not signals.received:
            raise
    if signals.received:
        raise interruption.Interrupted(
            signals.received, f"{settings.output_dir} holds step {saver.saved_step} of "
            f"{settings.num_train_steps}; the same command goes on from there")


def _is_due(step: int, evaluations: Evaluations, plan: TrainingPlan,
            settings: TrainingSettings) -> bool:
    every_steps = evaluations.settings.every_steps
    return (step == settings.num_train_steps
            or (step % every_steps == 0 if every_steps else plan.ends_epoch(step)))


def _describe_step(step: int, source: batches.Source, plan: TrainingPlan,
                   settings: TrainingSettings) -> str:
    """What the step after `step` takes, and how it takes less, for `memory.explained`."""
    batch_size = settings.per_replica_batch_size
    kept = checkpoints.latest(settings.output_dir)
    return (f"in training step {step + 1}: {batch_size} examples per replica at a time x "
            f"{source.padded_length(plan.global_batch(step))} tokens; "
            + memory.smaller_batch(batch_size, settings.gradient_accumulation_steps)
            + "--recompute_layers or a smaller --max_seq_length help"
            + (f"; {settings.output_dir} keeps step {kept.global_step}" if kept else ""))


def _model_fn(forward: Forward, initial_values: checkpoints.InitialValues,
              settings: TrainingSettings):
    def model_fn(features, mode):
        global_step = tf.train.get_or_create_global_step()

        def loss_of(micro_batch):
            part = features
            if settings.gradient_accumulation_steps > 1:
                part = _micro_batch(features, micro_batch, settings.per_replica_batch_size)
            mode = Mode(
                is_training=True,
                dropout_seed=_dropout_seed(settings.seed, global_step, micro_batch),
                computation=modeling.Computation(
                    float16=settings.fp16, recompute=settings.recompute_layers,
                    compiled=settings.xla))
            with initial_values.scope():
                return forward(part, mode).loss

        loss_scale = optimization.LossScale.create() if settings.fp16 else None
        loss, gradients = optimization.mean_gradients(
            loss_of, settings.gradient_accumulation_steps, loss_scale)
        train_op = optimization.create_train_op(
            gradients, settings.learning_rate, settings.num_train_steps, settings.warmup_steps,
            optimizer=settings.optimizer, layer_lr_decay=settings.layer_lr_decay,
            loss_scale=loss_scale)
        _skip_report_of_uninitialized_variables()
        # Estimator adds up what the replicas report; the mean over all of them is meant.
        reported_loss = loss / tf.distribute.get_strategy().num_replicas_in_sync
        return tf.estimator.EstimatorSpec(mode, loss=reported_loss, train_op=train_op)
    return model_fn


def _micro_batch(features: Dict[str, tf.Tensor], index: Union[int, tf.Tensor],
                 size: int) -> Dict[str, tf.Tensor]:
    # Gathered, because slices and reshapes of int32 would go through the host's memory.
    rows = index * size + tf.range(size)
    return {name: tf.gather(values, rows) for name, values in features.items()}


def _dropout_seed(seed: int, global_step: tf.Variable,
                  micro_batch: Union[int, tf.Tensor]) -> tf.Tensor:
    """[2], another for each step, micro-batch and replica of a run, and for other seeds."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    with tf.device("/cpu:0"):  # random kernels read their seeds in host memory
        # 2**20 is more replicas than anyone has: (seed, replica) pairs do not collide.
        stream = seed * 2**20 + tf.cast(replica, tf.int64)
        # And nobody trains for 2**40 steps.
        place = tf.cast(global_step, tf.int64) + tf.cast(micro_batch, tf.int64) * 2**40
        return tf.stack([stream, place])


def _skip_report_of_uninitialized_variables() -> None:
    """Saves one node per variable and replica, and two runs of them, at start-up.

    Everything is restored or initialized by construction; the report would only say so.
    """
    for collection in (tf.GraphKeys.READY_OP, tf.GraphKeys.READY_FOR_LOCAL_INIT_OP):
        if not tf.get_collection(collection):
            tf.add_to_collection(collection, tf.constant([], tf.string))


def _run_config(devices: Devices, settings: TrainingSettings) -> tf.estimator.RunConfig:
    # Checkpoints, summaries and lines on the screen come from hooks of ours: Estimator's
    # would save before the first step and write the graph with every checkpoint.
    return tf.estimator.RunConfig(
        model_dir=settings.output_dir,
        tf_random_seed=settings.seed,
        train_distribute=devices.strategy(),
        session_config=devices.session_config,
        keep_checkpoint_max=settings.keep_checkpoint_max + 2,  # the hook removes the surplus
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        log_step_count_steps=None)


class _ModelCheck(tf.train.SessionRunHook):
    """Holds the built model against the checkpoint it starts from, before any session."""

    def __init__(self, initial_values: checkpoints.InitialValues,
                 earlier: Optional[checkpoints.Checkpoint],
                 init_checkpoint: Optional[checkpoints.Checkpoint]):
        self._initial_values = initial_values
        self._earlier = earlier
        self._init_checkpoint = init_checkpoint

    def begin(self) -> None:
        if self._earlier:
            self._check_earlier()
            log.info(f"Resuming from {self._earlier.path} "
                     f"(step {self._earlier.global_step})")
        elif self._init_checkpoint:
            self._report_warm_start()

    def _check_earlier(self) -> None:
        # A run that had no loss scale so far starts with one now.
        new_names = set(optimization.LossScale.NAMES) - set(self._earlier.shapes)
        new, others = [], []
        for variable in tf.global_variables():
            (new if variable.op.name in new_names else others).append(variable)
        checkpoints.check_matches(self._earlier, others)
        if new:
            checkpoint_hook.restore_only(others, and_initialize=new)

    def _report_warm_start(self) -> None:
        values, path = self._initial_values, self._init_checkpoint.path
        if not values.found:
            raise UserError(f"--init_checkpoint={path} holds none of the model's variables; "
                            f"it has, for example, {', '.join(self._init_checkpoint.parameters()[:3])}")
        log.info(f"Initialized {len(values.found)} variables from {path}")
        if values.not_found:
            log.info(f"  not in the checkpoint, drawn at random: {', '.join(values.not_found)}")
        if values.unused():
            log.info(f"  in the checkpoint, not in the model: {', '.join(values.unused())}")

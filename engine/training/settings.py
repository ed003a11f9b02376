"""What every training command can be told: how to train, for how long, when to evaluate.

Adding a setting is adding a field here; see engine/settings.py for what derives from it.
"""

import dataclasses
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence, Type, Union

from absl import flags

import optimization
from engine import checkpoints, files
from engine.errors import UserError
from engine.settings import MAX_SEED, define_flags, of_flags, recorded, required, setting

MAX_STEPS = 2**31 - 1
TF32, FLOAT32, FLOAT16 = PRECISIONS = ("tf32", "float32", "float16")


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How to train, whatever is learned. Batch sizes are per replica."""
    train_batch_size: int = setting(
        32, "Examples per replica and training step.", positive=True, recorded=False)
    gradient_accumulation_steps: int = setting(
        1, "Micro-batches of --train_batch_size that each replica adds up in a step: a larger "
        "batch in the memory of one micro-batch.", positive=True)
    learning_rate: float = setting(5e-5, "Peak learning rate.", positive=True)
    optimizer: str = setting(
        "adamw", "lamb scales each parameter's update to the parameter's own size, for large "
        "batches.", choices=sorted(optimization.OPTIMIZERS))
    layer_lr_decay: float = setting(
        1.0, "The learning rate of a layer is that of the layer above it times this; the head "
        "has --learning_rate and the embeddings have the lowest.", between=(0.01, 1))
    precision: str = setting(
        TF32, "Precision of matrix products. tf32, TensorFlow's default: float32 values, of which "
        "Ampere and newer GPUs multiply 10 bits of the mantissa, and other devices all. float32: "
        "all bits on every device. float16: mixed precision with a dynamic loss scale, for GPUs "
        "with tensor cores.", choices=PRECISIONS)
    recompute_layers: bool = setting(
        False, "Keep only the input of each encoder layer and compute the layer again for the "
        "gradient: less memory, more time, the same result.")
    xla: bool = setting(
        False, "Compile the encoder's layers with XLA in training; steps are padded to one of at "
        "most eight lengths, each compiled once.")
    dynamic_padding: bool = setting(
        True, "Pad a batch to its longest example; false pads every batch to --max_seq_length.")
    seed: int = setting(
        42, "Seed of initial values, order of examples and dropout.", between=(0, MAX_SEED))
    save_checkpoints_steps: int = setting(
        1000, "Steps from checkpoint to checkpoint.", positive=True, recorded=False)
    keep_checkpoint_max: int = setting(
        5, "Number of newest checkpoints to keep.", positive=True, recorded=False)
    allow_batch_change: bool = setting(
        False, "Resume a run with another global batch size.", recorded=False)

    @property
    def examples_per_replica(self) -> int:
        """Examples that one replica takes in a step, in all its micro-batches."""
        return self.train_batch_size * self.gradient_accumulation_steps


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """How to evaluate, and when to do so during the training."""
    eval_batch_size: int = setting(
        8, "Examples of --max_seq_length tokens per replica and evaluation step; of shorter "
        "ones, as many as have that many tokens.", positive=True, recorded=False)
    eval_every_steps: int = setting(
        0, "Evaluate on the dev set every so many steps and at the end, and keep the best "
        "checkpoint; 0 evaluates only after the training.", between=(0, MAX_STEPS))
    eval_each_epoch: bool = setting(
        False, "Evaluate on the dev set at the end of each epoch, and keep the best checkpoint.")
    metric_for_best: Optional[str] = setting(
        None, "The metric that decides which checkpoint is the best: one of the task's, or its "
        "loss; by default the task's first metric.")
    early_stopping_patience: Optional[int] = setting(
        None, "Stop after so many evaluations without improvement.", positive=True)

    @property
    def during_training(self) -> bool:
        return bool(self.eval_every_steps or self.eval_each_epoch)

    @property
    def higher_is_better(self) -> bool:
        return not self.metric_for_best.endswith("loss")


class Schedule(NamedTuple):
    """For how long a run trains, and over which steps its learning rate rises."""
    num_train_steps: int  # at which the training ends, steps of earlier processes included
    warmup_steps: int


@dataclasses.dataclass(frozen=True)
class EpochSchedule:
    """A training of so many epochs."""
    num_train_epochs: float = setting(3.0, "Passes over the training set.", positive=True)
    warmup_proportion: float = setting(
        0.1, "Share of the training steps over which the learning rate rises: 0.1 is 10%.",
        between=(0, 1))

    def schedule(self, num_examples: int, global_batch_size: int) -> Schedule:
        """Raises a UserError where not one batch can be filled, or there are too many steps."""
        num_train_steps = count_steps(num_examples, self.num_train_epochs, global_batch_size)
        return Schedule(num_train_steps, int(num_train_steps * self.warmup_proportion))

    def describe(self, num_examples: int, global_batch_size: int) -> str:
        steps = self.schedule(num_examples, global_batch_size)
        return (f"{num_examples:,} examples x {self.num_train_epochs:g} epochs = "
                f"{steps.num_train_steps:,} steps, {steps.warmup_steps:,} of them warm-up")


@dataclasses.dataclass(frozen=True)
class StepSchedule:
    """A training of so many steps, whatever the number of examples and replicas."""
    num_train_steps: int = setting(100000, "Training steps.", between=(1, MAX_STEPS))
    num_warmup_steps: int = setting(
        10000, "Steps over which the learning rate rises.", between=(0, MAX_STEPS))

    def schedule(self, num_examples: int, global_batch_size: int) -> Schedule:
        del num_examples, global_batch_size
        return Schedule(self.num_train_steps, self.num_warmup_steps)

    def describe(self, num_examples: int, global_batch_size: int) -> str:
        epochs = self.num_train_steps * global_batch_size / num_examples
        return (f"{self.num_train_steps:,} steps, {self.num_warmup_steps:,} of them warm-up, are "
                f"{epochs:.3g} epochs of {num_examples:,} examples")


class RunSettings(NamedTuple):
    """Everything that the flags of a training command say, whatever is learned."""
    training: TrainingSettings
    evaluation: EvaluationSettings
    length: Union[EpochSchedule, StepSchedule]
    init_checkpoint: Optional[checkpoints.Checkpoint]
    output_dir: str
    store_dir: str

    def recorded(self) -> Dict[str, Any]:
        """What a resumed run may have otherwise than before; it is said. By flag."""
        return {**recorded(self.training), **recorded(self.length), **recorded(self.evaluation),
                "--init_checkpoint": self.init_checkpoint and self.init_checkpoint.path}

    def schedule(self, num_examples: int, num_replicas: int) -> Schedule:
        """See `EpochSchedule.schedule`."""
        return self.length.schedule(num_examples, self.global_batch_size(num_replicas))

    def global_batch_size(self, num_replicas: int) -> int:
        """Examples of a training step, over all replicas."""
        return self.training.examples_per_replica * num_replicas


def define_run_flags(values: flags.FlagValues,
                     length: Type[Union[EpochSchedule, StepSchedule]]) -> None:
    """The flags of every training command."""
    for settings in (TrainingSettings, EvaluationSettings, length):
        define_flags(values, settings)
    flags.DEFINE_bool("fp16", False, "The old name of --precision=float16.", flag_values=values)
    flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.",
                        flag_values=values)
    flags.DEFINE_string("store_dir", None, "Where prepared examples are kept, by default "
                        "<output_dir>/store. Runs that share it prepare their data once.",
                        flag_values=values)


def run_settings(values: flags.FlagValues, length: Type[Union[EpochSchedule, StepSchedule]],
                 metrics: Sequence[str] = (), loss: str = "eval_loss") -> RunSettings:
    """What the flags say; makes the directories last, when all is well.

    Args:
        metrics: the names of the task's metrics, the first of which is the default of
            --metric_for_best.
        loss: the name of the evaluation's loss.

    Raises:
        UserError: a flag is missing or has a value that it cannot have.
    """
    return RunSettings(
        training=_training_settings(values),
        evaluation=_evaluation_settings(values, metrics, loss),
        length=of_flags(values, length),
        init_checkpoint=_init_checkpoint(values),
        output_dir=files.make_directory(required(values, "output_dir"), "--output_dir"),
        store_dir=store_dir_of_flags(values))


def store_dir_of_flags(values: flags.FlagValues) -> str:
    """Makes the directory of --store_dir, or the default, and returns it."""
    return files.make_directory(
        values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir")


def count_steps(num_examples: int, num_epochs: float, global_batch_size: int) -> int:
    """Steps of `num_epochs` over the examples, each over all replicas; 1 to MAX_STEPS.

    Raises:
        UserError: not one batch can be filled, or there would be more steps.
    """
    steps = num_examples * num_epochs / global_batch_size
    if steps < 1:
        raise UserError(
            f"{num_examples} examples x {num_epochs:g} epochs do not fill one batch of "
            f"{global_batch_size} over all replicas; lower --train_batch_size or "
            "--gradient_accumulation_steps, or use fewer replicas")
    if not steps <= MAX_STEPS:
        raise UserError(
            f"{num_examples} examples x {num_epochs:g} epochs, {global_batch_size} in a step, are "
            f"more than {MAX_STEPS:,} steps; lower --num_train_epochs")
    return int(steps)


def _init_checkpoint(values: flags.FlagValues) -> Optional[checkpoints.Checkpoint]:
    # A student of distillation starts from --student instead.
    given = "init_checkpoint" in values and values.init_checkpoint
    return checkpoints.open_checkpoint(given) if given else None


def _training_settings(values: flags.FlagValues) -> TrainingSettings:
    settings = of_flags(values, TrainingSettings)
    if not values.fp16:
        return settings
    if values["precision"].present and settings.precision != FLOAT16:
        raise UserError(f"--fp16 is the old name of --precision={FLOAT16}, and --precision="
                        f"{settings.precision} is given, too; leave one of them out")
    return dataclasses.replace(settings, precision=FLOAT16)


def _evaluation_settings(values: flags.FlagValues, metrics: Sequence[str],
                         loss: str) -> EvaluationSettings:
    settings = of_flags(values, EvaluationSettings)
    if not settings.during_training:
        for name in ("metric_for_best", "early_stopping_patience"):
            if values[name].present:
                raise UserError(f"--{name} needs evaluation during the training: set "
                                "--eval_every_steps or --eval_each_epoch")
        return dataclasses.replace(settings, metric_for_best=None)
    if settings.eval_every_steps and settings.eval_each_epoch:
        raise UserError(f"--eval_every_steps={settings.eval_every_steps} and --eval_each_epoch "
                        "exclude each other; give one of them")
    if values.do_train and not values.do_eval:
        raise UserError("--eval_every_steps and --eval_each_epoch evaluate on the dev set: set "
                        "--do_eval, too")
    metric = settings.metric_for_best or metrics[0]
    if metric not in (*metrics, loss):
        raise UserError(f"--metric_for_best={metric}: this task has "
                        f"{', '.join((*metrics, loss))}")
    return dataclasses.replace(settings, metric_for_best=metric)

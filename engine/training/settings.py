"""The settings of every training command: how to train, for how long, and when to evaluate.

To add a setting, add a field here; engine/settings.py lists its uses.
"""

import dataclasses
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence, Type, Union

from absl import flags

import optimization
from engine import log
from engine.checkpoints import checkpoints
from engine.devices.devices import (
    FLOAT16, FLOAT32, PRECISIONS, TF32, Devices, chosen_precision)
from engine.disk import files
from engine.errors import UserError
from engine.progress import counted
from engine.settings import AUTO, MAX_SEED, UNRECORDED, define_flags, from_flags, recorded, required, setting
from engine.workers import worker_dirs

HELP_TOPIC = "Training"  # of the flags defined here

MAX_STEPS = 2**31 - 1
_WARMUP_STEPS = 10000  # of pretraining


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How to train. Batch sizes are per replica."""
    topic = "Training"
    train_batch_size: int = setting(
        32, "Examples per replica and training step.", positive=True, change=UNRECORDED)
    gradient_accumulation_steps: int = setting(
        1, "Micro-batches of --train_batch_size examples whose gradients each replica adds up in "
        "a step: a larger batch in the memory of one micro-batch.", positive=True)
    learning_rate: float = setting(5e-5, "Peak learning rate.", positive=True)
    lr_schedule: str = setting(
        "linear", "How the learning rate falls after the warm-up: linear as in BERT, along a cosine, "
        "or not at all (constant).", choices=sorted(optimization.SCHEDULES))
    min_lr_ratio: float = setting(
        0.0, "Share of --learning_rate at which a linear or cosine schedule ends.", between=(0, 1))
    optimizer: str = setting(
        "adamw", "The optimizer: adamw as in BERT, or lamb, which scales each variable's update "
        "to the norm of the variable, for large batches.",
        choices=sorted(optimization.OPTIMIZERS))
    adam_bias_correction: bool = setting(
        False, "Correct the bias of the optimizer's means, as PyTorch's AdamW does; BERT's does not.")
    adam_epsilon: float = setting(
        1e-6, "What the optimizer adds to the root of the squared gradients' mean; a smaller value lets tiny "
        "gradients, as those of a model without pretraining, change as much.", positive=True)
    layer_lr_decay: float = setting(
        1.0, "Factor from the learning rate of a layer to that of the layer below; output layers "
        "have --learning_rate, and the embeddings have the lowest rate.", between=(0.01, 1))
    freeze_layers: int = setting(
        0, "Number of the lowest encoder layers that keep their values, and with them the embeddings: "
        "a faster step, and less memory.")
    freeze_embeddings: bool = setting(
        False, "Keep the values of the embeddings.")
    fit_output_layer: Union[bool, str] = setting(
        AUTO, "Fit a new output layer to the encoder's features before the first step. auto: if it has more than three "
        "classes, labels or tags, or finds answers.")
    precision: str = setting(
        TF32, "Precision of matrix products. tf32: TensorFlow's default; Ampere and newer GPUs "
        "round float32 factors to 11 bits, and other devices keep all 24. float32: all bits on "
        "every device. float16: the encoder's products in float16, and in training a dynamic loss "
        "scale, for GPUs with tensor cores. bfloat16: the same without a loss scale, for Ampere and "
        "newer GPUs and for CPUs with AMX or AVX512-BF16; TensorFlow 2.15.",
        choices=PRECISIONS)
    gradient_transfer: Optional[str] = setting(
        None, "Type in which gradients cross replicas, by default float16 with --precision=float16 "
        "and else float32. float16: half the bytes, rounded to 11 bits and added up in them, with "
        "the dynamic loss scale of --precision=float16.", choices=(FLOAT32, FLOAT16))
    recompute_layers: bool = setting(
        False, "Keep only the input of each encoder layer in memory, and compute the layer again "
        "for its gradient: less memory, more time, the same result.")
    xla: Union[bool, str] = setting(
        AUTO, "Compile the encoder's layers with XLA in training, for at most eight lengths of batches. "
        "auto: on cards with TensorFlow 2.15, in trainings of at least 1,000 steps.")
    dynamic_padding: bool = setting(
        True, "Pad each batch to its longest example; false pads it to --max_seq_length.")
    seed: int = setting(
        42, "Seed of the initial values, the order of the examples and dropout.",
        between=(0, MAX_SEED))
    save_checkpoints_steps: int = setting(
        1000, "Steps between checkpoints.", positive=True, change=UNRECORDED)
    keep_checkpoint_max: int = setting(
        5, "Number of newest checkpoints to keep.", positive=True, change=UNRECORDED)
    new_output_layer: bool = setting(
        False, "Start the output layer anew on the encoder of the model to start from: for other labels, "
        "or for another kind of task.")
    allow_batch_change: bool = setting(
        False, "Allow resuming an unfinished run with another global batch size: it trains the examples "
        "that are left, in another number of steps.", change=UNRECORDED)

    @property
    def scales_loss(self) -> bool:
        """Whether gradients pass through float16, and so need a loss scale."""
        return FLOAT16 in (self.precision, self.transfer)

    @property
    def transfer(self) -> str:
        """The type in which gradients cross replicas."""
        return self.gradient_transfer or (FLOAT16 if self.precision == FLOAT16 else FLOAT32)

    def freezes(self, name: str) -> bool:
        """Whether a parameter keeps its value."""
        return optimization.is_frozen(
            name, num_layers=self.freeze_layers, embeddings=self.freeze_embeddings)

    @property
    def examples_per_replica(self) -> int:
        """Examples per replica and training step, in all its micro-batches."""
        return self.train_batch_size * self.gradient_accumulation_steps


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """How to evaluate, and when to evaluate during the training."""
    topic = "Evaluation"
    eval_batch_size: Optional[int] = setting(
        None, "As --predict_batch_size, for an evaluation.", positive=True, change=UNRECORDED)
    eval_every_steps: int = setting(
        0, "Steps between evaluations on the dev set, the last one at the end; keeps the best "
        "checkpoint. 0: evaluate only after the training.", between=(0, MAX_STEPS))
    eval_each_epoch: bool = setting(
        False, "Evaluate on the dev set at the end of each epoch, and keep the best checkpoint.")
    metric_for_best: Optional[str] = setting(
        None, "Metric for the best checkpoint: one of the task's metrics or its loss; by default "
        "the task's first metric.")
    early_stopping_patience: Optional[int] = setting(
        None, "Number of evaluations without improvement after which the training stops.",
        positive=True)

    @property
    def during_training(self) -> bool:
        """Whether to evaluate during the training."""
        return bool(self.eval_every_steps or self.eval_each_epoch)


class Schedule(NamedTuple):
    """The length of a training and of its warm-up."""
    num_train_steps: int  # global step at which the training ends
    warmup_steps: int  # over which the learning rate rises


@dataclasses.dataclass(frozen=True)
class EpochSchedule:
    """The length of a training in epochs."""
    topic = "Training"
    num_train_epochs: float = setting(3.0, "Passes over the training set.", positive=True)
    warmup_proportion: float = setting(
        0.1, "Share of the training steps over which the learning rate rises: 0.1 means 10%.",
        between=(0, 1))

    def schedule(self, num_examples: int, global_batch_size: int) -> Schedule:
        """The schedule."""
        steps = self.num_examples(num_examples, global_batch_size) / global_batch_size
        passes = (f"{counted(num_examples, 'examples')} x "
                  f"{counted(self.num_train_epochs, 'epochs')}")
        if steps < 1:
            raise UserError(
                f"{passes} do not fill one batch of {global_batch_size} over all replicas; lower "
                "--train_batch_size or --gradient_accumulation_steps, or use fewer replicas")
        if not steps <= MAX_STEPS:
            raise UserError(f"{passes} at {global_batch_size} per step are more than "
                            f"{MAX_STEPS:,} steps; lower --num_train_epochs")
        return Schedule(int(steps), int(int(steps) * self.warmup_proportion))

    def num_examples(self, num_examples: int, global_batch_size: int) -> float:
        """The examples that a training sees."""
        return num_examples * self.num_train_epochs


@dataclasses.dataclass(frozen=True)
class StepSchedule:
    """The length of a training in steps, independent of the number of examples and replicas."""
    topic = "Training"
    num_train_steps: int = setting(100000, "Training steps.", between=(1, MAX_STEPS))
    num_warmup_steps: Optional[int] = setting(
        None, f"Steps over which the learning rate rises; default: {_WARMUP_STEPS:,}, as Google's, but at most "
        "a tenth of --num_train_steps.", between=(0, MAX_STEPS))

    def __post_init__(self) -> None:
        if self.num_warmup_steps is None:  # recorded as a number, which a longer training then keeps
            object.__setattr__(self, "num_warmup_steps", min(_WARMUP_STEPS, self.num_train_steps // 10))

    def schedule(self, num_examples: int, global_batch_size: int) -> Schedule:
        """The schedule."""
        return Schedule(self.num_train_steps, self.num_warmup_steps)

    def num_examples(self, num_examples: int, global_batch_size: int) -> float:
        """The examples that a training sees."""
        return self.num_train_steps * global_batch_size


class RunSettings(NamedTuple):
    """All settings that the training commands share."""
    training: TrainingSettings
    evaluation: EvaluationSettings
    length: Union[EpochSchedule, StepSchedule]
    init_checkpoint: Optional[checkpoints.Checkpoint]
    output_dir: str
    store_dir: str
    command_settings: Sequence[Any] = ()  # objects of settings classes that only this command has

    def recorded(self) -> Dict[str, Any]:
        """The settings for the run's record, by flag. A resumed run warns of changes."""
        return {**recorded(self.training, self.length, self.evaluation, *self.command_settings),
                "--init_checkpoint": self.init_checkpoint and self.init_checkpoint.path}

    def global_batch_size(self, num_replicas: int) -> int:
        """Examples per training step over all replicas."""
        return self.training.examples_per_replica * num_replicas


def define_run_flags(values: flags.FlagValues,
                     length: Type[Union[EpochSchedule, StepSchedule]]) -> None:
    """Defines the flags of every training command."""
    for settings in (TrainingSettings, EvaluationSettings, length):
        define_flags(values, settings)
    flags.DEFINE_bool("fp16", False, "The old name of --precision=float16.", flag_values=values)
    flags.DEFINE_string("output_dir", None, "Directory for checkpoints and results.",
                        flag_values=values)
    flags.DEFINE_string("store_dir", None, "Directory for tokenized examples, by default "
                        "<output_dir>/store. Runs that share it tokenize their data only once.",
                        flag_values=values)


def run_settings(values: flags.FlagValues, devices: Devices, num_layers: int,
                 length: Type[Union[EpochSchedule, StepSchedule]], metrics: Sequence[str] = (),
                 loss: Optional[str] = "eval_loss") -> RunSettings:
    """The settings from the flags. Makes the directories, but only if all flags are correct.

    Args:
        num_layers: the encoder's.
        metrics: the names of the task's metrics; the first is the default of --metric_for_best.
        loss: the name of the evaluation's loss; None if it has none.
    """
    # distillation.run has no --init_checkpoint: its student starts from --student.
    start = "init_checkpoint" in values and values.init_checkpoint
    made = RunSettings(
        training=_training_settings(values, num_layers),
        evaluation=_evaluation_settings(values, metrics, loss),
        length=from_flags(values, length),
        init_checkpoint=checkpoints.open_checkpoint(start) if start else None,
        output_dir=worker_dirs.output_directory(
            required(values, "output_dir"), devices.peers, is_training=values.do_train),
        store_dir=files.make_directory(
            values.store_dir or os.path.join(values.output_dir, "store"), "--store_dir"))
    worker_dirs.find_builder(made.store_dir, devices.peers)
    if values.do_train and devices.num_replicas > 1 and made.training.transfer != (
            made.training.gradient_transfer or FLOAT32):
        log.info("gradients cross replicas in float16, as --precision=float16 computes them; "
                 "--gradient_transfer=float32 widens them before")
    if "init_checkpoint" in values and values.do_train and not (
            made.init_checkpoint or checkpoints.latest(made.output_dir)):
        log.warn("no --init_checkpoint: the whole model starts from random values")
    return made


def _training_settings(values: flags.FlagValues, num_layers: int) -> TrainingSettings:
    training = dataclasses.replace(from_flags(values, TrainingSettings),
                                   precision=chosen_precision(values))
    if training.min_lr_ratio and training.lr_schedule == "constant":
        raise UserError(f"--min_lr_ratio={training.min_lr_ratio} needs a rate that falls, and "
                        "--lr_schedule=constant does not; leave one of them out")
    if not 0 <= training.freeze_layers <= num_layers:
        raise UserError(f"--freeze_layers={training.freeze_layers}: must be between 0 and {num_layers}, "
                        "the number of the encoder's layers")
    return training


def _evaluation_settings(values: flags.FlagValues, metrics: Sequence[str],
                         loss: Optional[str]) -> EvaluationSettings:
    settings = from_flags(values, EvaluationSettings)
    if not settings.during_training:
        for name in ("metric_for_best", "early_stopping_patience"):
            if values[name].present:
                raise UserError(f"--{name} needs evaluation during the training: set "
                                "--eval_every_steps or --eval_each_epoch")
        return dataclasses.replace(settings, metric_for_best=None)
    if settings.eval_every_steps and settings.eval_each_epoch:
        raise UserError(f"--eval_every_steps={settings.eval_every_steps} and --eval_each_epoch "
                        "cannot be combined; give one of them")
    if values.do_train and not values.do_eval:
        raise UserError("--eval_every_steps and --eval_each_epoch evaluate on the dev set and "
                        "need --do_eval; set that, too")
    metric = settings.metric_for_best or metrics[0]
    known = [*metrics, *filter(None, [loss])]
    if metric not in known:
        raise UserError(f"--metric_for_best={metric}: this task has no such metric; choose from "
                        f"{', '.join(known)}")
    return dataclasses.replace(settings, metric_for_best=metric)

"""The flags that every training command has, and what they mean to the engine."""

import math
from typing import NamedTuple, Optional, Sequence

from absl import flags

import optimization
from engine import devices, log, runtime
from engine.errors import UserError
from engine.training.evaluations import EvaluationSettings

# Of the original; they drive TPUs and have no meaning here.
_TPU_FLAGS = ("iterations_per_loop", "tpu_name", "tpu_zone", "gcp_project", "master",
              "num_tpu_cores")


class BatchSizes(NamedTuple):
    """Examples that one replica takes at a time."""
    train: int
    evaluate: int
    predict: int


def define_device_flags(values: flags.FlagValues) -> None:
    """Which cards, how many replicas."""
    flags.DEFINE_integer(
        "num_gpus", None, "How many of the GPUs that CUDA_VISIBLE_DEVICES shows; all of them "
        "where left out, 0 for the CPU.", flag_values=values)
    flags.DEFINE_integer("n_gpus", None, "The same as --num_gpus.", flag_values=values)
    flags.DEFINE_integer(
        "replicas_per_gpu", 1, "Replicas on each GPU, for short sequences that leave a card "
        "idle.", flag_values=values)
    flags.DEFINE_integer(
        "num_cpu_replicas", None, "Replicas on virtual CPU devices, to try things without a GPU.",
        flag_values=values)
    flags.DEFINE_enum(
        "all_reduce", None, sorted(devices.ALL_REDUCE), "How gradients are added up over "
        "replicas; the best for the devices found where left out.", flag_values=values)


def define_model_flags(values: flags.FlagValues, model: str) -> None:
    """Where a model is; `model` says in the help which one."""
    flags.DEFINE_string("bert_config_file", None, f"bert_config.json of {model}.",
                        flag_values=values)
    flags.DEFINE_string("vocab_file", None, f"Vocabulary of {model}.", flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, f"Checkpoint of {model} (prefix or directory).",
                        flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; true for uncased models.",
                      flag_values=values)


def define_training_flags(values: flags.FlagValues) -> None:
    """How to train. Batch sizes are per replica."""
    flags.DEFINE_integer("train_batch_size", 32, "Examples per replica and training step.",
                         flag_values=values)
    flags.DEFINE_integer(
        "gradient_accumulation_steps", 1, "Train on so many times --train_batch_size examples per "
        "replica and step, in the memory of one time.", flag_values=values)
    flags.DEFINE_integer("eval_batch_size", 8, "Examples of --max_seq_length per replica and "
                         "evaluation step; of shorter ones, as many as have those tokens.",
                         flag_values=values)
    flags.DEFINE_integer("predict_batch_size", 8, "Like --eval_batch_size, for predictions.",
                         flag_values=values)
    flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.", flag_values=values)
    flags.DEFINE_enum(
        "optimizer", "adamw", sorted(optimization.OPTIMIZERS), "lamb scales each parameter's "
        "update to the parameter's own size, for large batches.", flag_values=values)
    flags.DEFINE_float(
        "layer_lr_decay", 1.0, "The learning rate of a layer is that of the layer above it times "
        "this, the embeddings' the lowest and the head's --learning_rate.", flag_values=values)
    flags.DEFINE_bool(
        "fp16", False, "Mixed precision: the encoder's matrix products in float16, with a loss "
        "scale that finds itself. For GPUs with tensor cores.", flag_values=values)
    flags.DEFINE_bool(
        "recompute_layers", False, "Keep of each encoder layer its input alone and compute it "
        "again for the gradient: less memory, more time, the same result.", flag_values=values)
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "Share of the training steps over which the learning rate "
        "rises: 0.1 is 10%.", flag_values=values)
    flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps from checkpoint to checkpoint.",
                         flag_values=values)
    flags.DEFINE_integer("keep_checkpoint_max", 5, "The newest checkpoints that are kept.",
                         flag_values=values)
    flags.DEFINE_integer("seed", 42, "Of initial values, order of examples and dropout.",
                         flag_values=values)
    flags.DEFINE_bool(
        "xla", False, "Compile the encoder's layers with XLA in training; steps are padded to one "
        "of a handful of lengths, each compiled once.", flag_values=values)
    flags.DEFINE_bool(
        "dynamic_padding", True, "Pad a batch to its longest example; false pads each one to "
        "--max_seq_length.", flag_values=values)
    flags.DEFINE_bool(
        "allow_batch_change", False, "Go on with a run with another global batch size.",
        flag_values=values)
    flags.DEFINE_string(
        "store_dir", None, "Where prepared examples are kept; <output_dir>/store where left out. "
        "Runs that share it prepare their data once.", flag_values=values)


def define_evaluation_flags(values: flags.FlagValues) -> None:
    """Evaluation during the training."""
    flags.DEFINE_integer(
        "eval_every_steps", 0, "Evaluate on the dev set after so many steps, and at the end, and "
        "keep the best checkpoint; 0: only after the training.", flag_values=values)
    flags.DEFINE_bool("eval_each_epoch", False, "The same at the end of each epoch.",
                      flag_values=values)
    flags.DEFINE_string(
        "metric_for_best", None, "What the best checkpoint is the best in: a metric of the task, "
        "or eval_loss; the task's first where left out.", flag_values=values)
    flags.DEFINE_integer(
        "early_stopping_patience", None, "Stop after so many evaluations without improvement.",
        flag_values=values)


def define_tpu_flags(values: flags.FlagValues) -> None:
    """Accepted so that commands written for the original run; see `check_tpu_flags`."""
    flags.DEFINE_bool("use_tpu", False, "Not supported; must be false.", flag_values=values)
    flags.DEFINE_integer("iterations_per_loop", 1000, "TPU only; ignored.", flag_values=values)
    flags.DEFINE_string("tpu_name", None, "TPU only; ignored.", flag_values=values)
    flags.DEFINE_string("tpu_zone", None, "TPU only; ignored.", flag_values=values)
    flags.DEFINE_string("gcp_project", None, "TPU only; ignored.", flag_values=values)
    flags.DEFINE_string("master", None, "TPU only; ignored.", flag_values=values)
    flags.DEFINE_integer("num_tpu_cores", 8, "TPU only; ignored.", flag_values=values)


def check_tpu_flags(values: flags.FlagValues) -> None:
    if values.use_tpu:
        raise UserError("--use_tpu=true: this program runs on GPUs and CPUs; "
                        "set --use_tpu=false, and --num_gpus for the number of cards")
    for name in _TPU_FLAGS:
        if values[name].present:
            log.warn(f"--{name} is for TPUs and has no effect here")


def find_devices(values: flags.FlagValues, training: bool) -> devices.Devices:
    """The devices that the flags ask for; says so where they end up on the CPU.

    With --xla, where there is such a flag, TensorFlow is told before they are looked for.

    Args:
        training: False where the process only infers.
    """
    if "xla" in values and values.xla:
        runtime.prepare_xla()
    found = devices.find_devices(
        num_gpus=_num_gpus(values),
        replicas_per_gpu=values.replicas_per_gpu,
        num_cpu_replicas=values.num_cpu_replicas,
        all_reduce=values.all_reduce,
        training=training)
    if found.kind == "CPU" and _num_gpus(values) is None and not values.num_cpu_replicas:
        log.warn(f"{devices.why_no_gpu()}: running on the CPU, which is many times slower")
    return found


def _num_gpus(values: flags.FlagValues) -> Optional[int]:
    if None not in (values.num_gpus, values.n_gpus) and values.num_gpus != values.n_gpus:
        raise UserError(f"--num_gpus={values.num_gpus} and --n_gpus={values.n_gpus} are the same "
                        "flag and disagree; give one of them")
    return values.n_gpus if values.num_gpus is None else values.num_gpus


def batch_sizes(values: flags.FlagValues) -> BatchSizes:
    return BatchSizes(train=positive(values, "train_batch_size"),
                      evaluate=positive(values, "eval_batch_size"),
                      predict=positive(values, "predict_batch_size"))


def evaluation_settings(values: flags.FlagValues, metrics: Sequence[str],
                        loss: str = "eval_loss") -> Optional[EvaluationSettings]:
    """What the flags say of evaluation during the training; None where there is to be none.

    Args:
        metrics: the names of the task's, of which more is better.
        loss: the name of the one of which less is better.
    """
    every_steps = in_range(values, "eval_every_steps", 0, 2**31 - 1)
    if not (every_steps or values.eval_each_epoch):
        for name in ("metric_for_best", "early_stopping_patience"):
            if values[name].present:
                raise UserError(f"--{name} needs evaluation during the training: set "
                                "--eval_every_steps or --eval_each_epoch")
        return None
    if every_steps and values.eval_each_epoch:
        raise UserError(f"--eval_every_steps={every_steps} and --eval_each_epoch exclude each "
                        "other; give one of them")
    if values.do_train and not values.do_eval:
        raise UserError("--eval_every_steps and --eval_each_epoch evaluate on the dev set: set "
                        "--do_eval, too")
    metric = values.metric_for_best or metrics[0]
    if metric not in (*metrics, loss):
        raise UserError(f"--metric_for_best={metric}: this task has "
                        f"{', '.join((*metrics, loss))}")
    return EvaluationSettings(
        every_steps=every_steps or None, metric=metric, higher_is_better=metric != loss,
        patience=(positive(values, "early_stopping_patience")
                  if values["early_stopping_patience"].present else None))


def positive(values: flags.FlagValues, name: str):
    """The value of a flag that must be above 0. Raises a UserError."""
    value = values[name].value
    if not 0 < value < math.inf:  # nor NaN
        raise UserError(f"--{name}={value}: must be a number greater than 0")
    return value


def in_range(values: flags.FlagValues, name: str, low: float, high: float):
    """The value of a flag from `low` to `high`, both included. Raises a UserError."""
    value = values[name].value
    if not low <= value <= high:
        raise UserError(f"--{name}={value}: must be between {low} and {high}")
    return value


def required(values: flags.FlagValues, name: str) -> str:
    """The value of a flag that must be given. Raises a UserError."""
    value = values[name].value
    if not value:
        raise UserError(f"--{name} is required")
    return value

"""Learning rate schedule, gradients over micro-batches, loss scale and the update.

Has the public names of Google's `optimization.py`; `multigpu_optimizer` makes the update.
"""

import functools
import math
import re
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

from replication import gradient_exchange
from replication import graph_functions
import multigpu_optimizer

# Devlin et al., "BERT", appendix A.2; biases and layer norms as in the released code.
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")
OPTIMIZERS = {"adamw": multigpu_optimizer.AdamWeightDecayOptimizer,
              "lamb": multigpu_optimizer.LambOptimizer}

# By the share of the training that is left, a tensor from 1 to 0 → the share of the peak rate.
SCHEDULES = {"linear": lambda left: left,
             "cosine": lambda left: 0.5 - 0.5 * tf.cos(math.pi * left),
             "constant": tf.ones_like}

GradientAndVariable = Tuple[Optional[multigpu_optimizer.Gradient], tf.Variable]


class LossScale(NamedTuple):
    """The factor of the loss that keeps float16 gradients from vanishing and from overflowing.

    Used for gradients that are computed or transferred in float16.

    It is halved after a step with gradients that are not finite, and doubled after `PERIOD`
    finite steps in a row, between 1 and `LARGEST` (Micikevicius et al., "Mixed Precision
    Training", section 3.2). It is a power of two, so scaling does not round the gradients.
    """
    value: tf.Variable
    good_steps: tf.Variable  # finite steps since the value last changed

    INITIAL = 2.0 ** 15
    LARGEST = 2.0 ** 24
    PERIOD = 2000
    NAMES = ("loss_scale/value", "loss_scale/good_steps")  # in checkpoints

    @classmethod
    def create(cls) -> "LossScale":
        """Creates its variables, in a replica of any strategy or without one."""
        return cls(*[
            tf.get_variable(name, [], dtype, tf.constant_initializer(value), trainable=False,
                            use_resource=True,
                            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
            for name, dtype, value in zip(cls.NAMES, (tf.float32, tf.int64), (cls.INITIAL, 0))])

    def after_step(self, value: tf.Tensor, finite: tf.Tensor) -> tf.Operation:
        """Updates one replica's copy after a step whose loss was multiplied by `value`."""
        good_steps = self.good_steps.read_value() + 1
        is_full = good_steps >= self.PERIOD
        after_good = tf.where(is_full, tf.minimum(value * 2.0, self.LARGEST), value)
        after_bad = tf.maximum(value * 0.5, 1.0)
        starts_anew = tf.logical_or(is_full, tf.logical_not(finite))
        return tf.group(
            self.value.assign(tf.where(finite, after_good, after_bad)),
            self.good_steps.assign(tf.where(starts_anew, tf.zeros_like(good_steps), good_steps)))


def learning_rate_at(global_step: tf.Tensor, init_lr: float, num_train_steps: int,
                     num_warmup_steps: int, *, schedule: str = "linear",
                     min_lr_ratio: float = 0.0) -> tf.Tensor:
    """The decay from `init_lr` over the training, after a linear warm-up from 0.

    Args:
        global_step: scalar integer, updates made so far.
        init_lr: the rate from which the decay starts, at step 0. The warm-up does not delay the
            decay but replaces its first values, so the highest rate is a little lower.
        num_train_steps: the step at which the decay ends.
        num_warmup_steps: as long as `global_step` is smaller, the rate is
            init_lr * global_step / num_warmup_steps.
        schedule: a key of SCHEDULES; linear is Google's.
        min_lr_ratio: the share of `init_lr` at which the decay ends.

    Returns:
        A float32 scalar.
    """
    step = tf.cast(global_step, tf.float32)
    remaining = 1.0 - tf.minimum(step, float(num_train_steps)) / num_train_steps
    share = SCHEDULES[schedule](remaining)
    if min_lr_ratio:
        share = min_lr_ratio + (1.0 - min_lr_ratio) * share
    decayed = init_lr * share
    if not num_warmup_steps:
        return decayed
    return tf.where(step < num_warmup_steps, init_lr * step / num_warmup_steps, decayed)


def create_optimizer(loss: tf.Tensor, init_lr: float, num_train_steps: int,
                     num_warmup_steps: Optional[int], use_tpu: bool = False) -> tf.Operation:
    """Creates the train_op: gradients of `loss`, clipping to norm 1.0, AdamW, `global_step` + 1.

    Works in a replica of any strategy and without one. `loss` is the mean over the replica's
    batch; the update is for the mean over the batches of all replicas.

    Raises:
        ValueError: `use_tpu` is set; this code drives GPUs and CPUs.
    """
    if use_tpu:
        raise ValueError("use_tpu=True is not supported: this optimizer runs on GPUs and CPUs")
    variables = tf.trainable_variables()
    return create_update(list(zip(tf.gradients(loss, variables), variables)), init_lr,
                         num_train_steps, num_warmup_steps).operation


def create_update(gradients: List[GradientAndVariable], init_lr: float, num_train_steps: int,
                  num_warmup_steps: Optional[int], *, optimizer: str = "adamw",
                  layer_lr_decay: float = 1.0, lr_schedule: str = "linear",
                  min_lr_ratio: float = 0.0,
                  loss_scale: Optional[LossScale] = None,
                  transfer_dtype: tf.DType = tf.float32,
                  most_rows: Optional[int] = None,
                  compiled: bool = False,
                  bias_correction: bool = False,
                  epsilon: float = 1e-6,
                  place: Callable[[tf.Tensor], tf.Tensor] = lambda step: step
                  ) -> multigpu_optimizer.Update:
    """Like `create_optimizer`, but takes the gradients of the replica's mean loss.

    Args:
        optimizer: a key of OPTIMIZERS.
        layer_lr_decay: `decay` of `layer_factor`.
        lr_schedule, min_lr_ratio: see `learning_rate_at`.
        loss_scale: must be given if the gradients are those of the loss times its value.
        transfer_dtype: type of gradients in transfer.
        most_rows: the maximum rows of a replica's sparse gradient; None: unknown.
        compiled: let XLA compile the update as one program; not on TensorFlow 1.15.
        bias_correction, epsilon: see AdamWeightDecayOptimizer.
        place: where a global step stands in the schedule of the learning rate.
    """
    global_step = tf.train.get_or_create_global_step()
    factor = None
    if layer_lr_decay != 1.0:
        names = [variable.op.name for _, variable in gradients]
        factor = functools.partial(layer_factor, num_layers=count_layers(names),
                                   decay=layer_lr_decay)
    updater = OPTIMIZERS[optimizer](
        learning_rate=learning_rate_at(
            place(global_step), init_lr, num_train_steps, num_warmup_steps or 0,
            schedule=lr_schedule, min_lr_ratio=min_lr_ratio),
        weight_decay_rate=WEIGHT_DECAY_RATE,
        exclude_from_weight_decay=EXCLUDE_FROM_WEIGHT_DECAY,
        clip_norm=CLIP_NORM,
        learning_rate_factor=factor,
        loss_scale=loss_scale,
        transfer_dtype=transfer_dtype,
        most_rows=most_rows,
        compiled=compiled,
        bias_correction=bias_correction,
        epsilon=epsilon)
    return updater.update(gradients, global_step)


def layer_factor(name: str, *, num_layers: int, decay: float) -> float:
    """The factor by which a parameter's learning rate is multiplied, from the parameter's name.

    It is `decay` to the power of the number of layers above the parameter (discriminative
    fine-tuning: Howard and Ruder, "Universal Language Model Fine-tuning for Text
    Classification", section 3.2). Pooler and head are above all encoder layers, the embeddings
    below.
    """
    layer = _layer_of(name)
    if layer is not None:
        return decay ** (num_layers - layer)
    return decay ** (num_layers + 1) if "bert/embeddings/" in name else 1.0


def is_frozen(name: str, *, num_layers: int, embeddings: bool) -> bool:
    """Whether a parameter is in the lowest encoder layers or in the embeddings, from its name.

    Args:
        num_layers: that are frozen, and with them the embeddings, which are below.
        embeddings: whether the embeddings are frozen in any case.
    """
    layer = _layer_of(name)
    if layer is not None:
        return layer < num_layers
    return "bert/embeddings/" in name and (embeddings or num_layers > 0)


def count_layers(names: Iterable[str]) -> int:
    """The number of encoder layers, from the names of all parameters."""
    return 1 + max((layer for layer in map(_layer_of, names) if layer is not None), default=-1)


def _layer_of(name: str) -> Optional[int]:
    match = re.search(r"/layer_(\d+)/", name)
    return int(match.group(1)) if match else None


def mean_gradients(loss_of: Callable[[Union[int, tf.Tensor]], tf.Tensor], num_micro_batches: int,
                   loss_scale: Optional[tf.Tensor] = None, *, compiled: bool = False
                   ) -> Tuple[tf.Tensor, List[GradientAndVariable]]:
    """The loss of a batch and its gradients, in the memory that one micro-batch takes.

    Micro-batches have equal sizes, so the mean of their mean losses is that of the batch. The
    first one is computed outside of the loop over the others: it creates the variables and
    shows which gradients are sparse. The rows of sparse gradients are collected unchanged, so
    gradient and norm are those of the whole batch.

    Args:
        loss_of: function from a micro-batch's number to its mean loss, a scalar. It is called
            with 0 and, if there are more micro-batches, once more in the loop with a tensor,
            in a variable scope that reuses the variables.
        loss_scale: the value of a `LossScale`. If given, gradients are those of the loss times it. The
            returned loss is not multiplied.
        compiled: let XLA add a layer's dense gradients, of micro-batches and of several passes over
            the layer, in one program, which also widens those of 16 bits.

    Returns:
        The loss, and a gradient or None for each trainable variable, in the order of
        `tf.trainable_variables`.
    """
    scale = loss_scale
    if num_micro_batches > 1:  # scaled losses instead of a pass over all gradients at the end
        scale = (tf.constant(1.0) if scale is None else scale) / num_micro_batches
    loss = loss_of(0)
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables, scale)
    if compiled:
        gradients = _with_passes_added(list(zip(gradients, variables)))
    if num_micro_batches == 1:
        return loss, list(zip(gradients, variables))
    pairs = [(gradient, variable) for gradient, variable in zip(gradients, variables)
             if gradient is not None]
    gradients, variables = zip(*pairs)
    groups = _dense_of_layers(pairs) if compiled else []

    def add_micro_batch(index, loss_sum, sums):
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            loss = loss_of(index)
        more = tf.gradients(loss, variables, scale)
        return index + 1, loss_sum + loss, _added(sums, more, index, groups)

    sums = _first(gradients, num_micro_batches, groups)
    # The loop starts after the backward pass of the first micro-batch.
    with tf.control_dependencies([
            gradient.values if isinstance(total, _Rows) else total
            for total, gradient in zip(sums, gradients)]):
        first_index = tf.constant(1)
    _, loss_sum, sums = tf.while_loop(
        lambda index, *sums: index < num_micro_batches, add_micro_batch,
        [first_index, loss, sums], parallel_iterations=1, back_prop=False)
    means = {variable.name: _joined(total, gradient, num_micro_batches)
             for total, gradient, variable in zip(sums, gradients, variables)}
    return loss_sum / num_micro_batches, [
        (means.get(variable.name), variable) for variable in tf.trainable_variables()]


class _Rows(NamedTuple):
    """The rows of a sparse gradient, one array element for each micro-batch.

    Indices are stored as the bits of floats, because GPUs have no arrays of integers.
    """
    values: tf.TensorArray
    indices: tf.TensorArray


_Sum = Union[tf.Tensor, _Rows]


def _of_passes(gradient: tf.Tensor) -> List[tf.Tensor]:
    """What a model's passes over several texts add to a gradient, each before its cast to float32."""
    source = gradient_exchange.before_widening(gradient)
    parts = source.op.inputs if source.op.type == "AddN" else [source]
    return [gradient_exchange.before_widening(part) for part in parts]


def _with_passes_added(pairs: Sequence[GradientAndVariable]
                       ) -> List[Optional[multigpu_optimizer.Gradient]]:
    """The gradients; XLA adds what several passes add to those of a layer."""
    gradients = [gradient for gradient, _ in pairs]
    for group in _dense_of_layers(pairs):
        passes = {number: _of_passes(gradients[number]) for number in group}
        sums = {number: parts for number, parts in passes.items() if len(parts) > 1}
        if len(sums) > 1:
            for number, total in zip(sums, graph_functions.add_together(list(sums.values()))):
                gradients[number] = total
    return gradients


def _dense_of_layers(pairs: Sequence[GradientAndVariable]) -> List[List[int]]:
    """The numbers of the dense gradients, in a list for each layer and one for the rest."""
    layers: Dict[Optional[int], List[int]] = {}
    for number, (gradient, variable) in enumerate(pairs):
        if isinstance(gradient, tf.Tensor):
            layers.setdefault(_layer_of(variable.op.name), []).append(number)
    return list(layers.values())


def _first(gradients: Sequence[multigpu_optimizer.Gradient], count: int,
           groups: Sequence[Sequence[int]]) -> List[_Sum]:
    """The sums after the first of `count` micro-batches; XLA widens the gradients of each group."""
    sums = list(gradients)
    for group in groups:
        narrow = [gradient_exchange.before_widening(gradients[number]) for number in group]
        for number, total in zip(group, graph_functions.cast_together(narrow, tf.float32)):
            sums[number] = total
    for number, gradient in enumerate(gradients):
        if isinstance(gradient, tf.IndexedSlices):
            sums[number] = _with_rows(_Rows(
                tf.TensorArray(gradient.values.dtype, count, infer_shape=False),
                tf.TensorArray(tf.float32, count, infer_shape=False)), gradient, 0)
    return sums


def _added(sums: Sequence[_Sum], gradients: Sequence[multigpu_optimizer.Gradient],
           index: tf.Tensor, groups: Sequence[Sequence[int]]) -> List[_Sum]:
    """The sums after one more micro-batch; XLA adds the gradients of each group."""
    added = {}
    for group in groups:
        added.update(zip(group, graph_functions.add_together(
            [[sums[number], *_of_passes(gradients[number])] for number in group])))
    for number, (total, gradient) in enumerate(zip(sums, gradients)):
        if isinstance(total, _Rows):
            added[number] = _with_rows(total, gradient, index)
        elif number not in added:
            added[number] = total + gradient
    return [added[number] for number in range(len(sums))]


def _with_rows(rows: _Rows, gradient: tf.IndexedSlices, index: Union[int, tf.Tensor]) -> _Rows:
    return _Rows(rows.values.write(index, gradient.values),
                 rows.indices.write(index, tf.bitcast(gradient.indices, tf.float32)))


def _joined(total: _Sum, first: multigpu_optimizer.Gradient,
            count: int) -> multigpu_optimizer.Gradient:
    if not isinstance(total, _Rows):
        return total
    values = total.values.concat()
    indices = tf.bitcast(total.indices.concat(), first.indices.dtype)
    rows = first.indices.shape.num_elements()
    indices.set_shape([rows and rows * count])
    values.set_shape(indices.shape.concatenate(first.values.shape[1:]))
    return tf.IndexedSlices(values, indices, first.dense_shape)


class AdamWeightDecayOptimizer(multigpu_optimizer.AdamWeightDecayOptimizer):
    """The optimizer for Google's callers, which advance `global_step` themselves."""
    ADVANCES_GLOBAL_STEP = False

    def apply_gradients(self,
                        grads_and_vars: Iterable[Tuple[tf.Tensor, tf.Variable]],
                        global_step: Optional[tf.Variable] = None,
                        name: Optional[str] = None) -> tf.Operation:
        """Updates the variables; `global_step` is accepted and left alone, as in the original."""
        del global_step
        return super().apply_gradients(grads_and_vars, name=name)

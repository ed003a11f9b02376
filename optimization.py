"""The schedule of the learning rate, and the train_op of a loss.

Google's names and meaning on top of `multigpu_optimizer`, which does the update.
"""

from typing import Iterable, Optional, Tuple

import tensorflow.compat.v1 as tf

import multigpu_optimizer

# Devlin et al., "BERT", appendix A.2; biases and layer norms as in the released code.
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0
EXCLUDE_FROM_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


def learning_rate_at(global_step: tf.Tensor, init_lr: float, num_train_steps: int,
                     num_warmup_steps: int) -> tf.Tensor:
    """Rises linearly from 0 to `init_lr`'s line over the warm-up; that line falls to 0.

    Args:
        global_step: scalar integer, updates made so far.
        init_lr: the learning rate that the decay starts from, at step 0.
        num_train_steps: at which the rate reaches 0.
        num_warmup_steps: during the first so many, the rate is init_lr * step / steps.

    Returns:
        A float32 scalar.
    """
    step = tf.cast(global_step, tf.float32)
    remaining = 1.0 - tf.minimum(step, float(num_train_steps)) / num_train_steps
    decayed = init_lr * remaining
    if not num_warmup_steps:
        return decayed
    return tf.where(step < num_warmup_steps, init_lr * step / num_warmup_steps, decayed)


def create_optimizer(loss: tf.Tensor, init_lr: float, num_train_steps: int,
                     num_warmup_steps: Optional[int], use_tpu: bool = False) -> tf.Operation:
    """Makes the train_op: gradients of `loss`, clipping to norm 1.0, AdamW, one more step.

    Works in a replica of any strategy and without one; `loss` is the mean over the
    replica's batch, and the update is that of the mean over all of them.

    Raises:
        ValueError: `use_tpu` is set; this code drives GPUs and CPUs.
    """
    if use_tpu:
        raise ValueError("use_tpu=True is not supported: this optimizer runs on GPUs and CPUs")
    global_step = tf.train.get_or_create_global_step()
    optimizer = multigpu_optimizer.AdamWeightDecayOptimizer(
        learning_rate=learning_rate_at(
            global_step, init_lr, num_train_steps, num_warmup_steps or 0),
        weight_decay_rate=WEIGHT_DECAY_RATE,
        exclude_from_weight_decay=EXCLUDE_FROM_WEIGHT_DECAY,
        clip_norm=CLIP_NORM)
    variables = tf.trainable_variables()
    return optimizer.apply_gradients(
        zip(tf.gradients(loss, variables), variables), global_step=global_step)


class AdamWeightDecayOptimizer(multigpu_optimizer.AdamWeightDecayOptimizer):
    """The same optimizer as Google's callers know it: they advance `global_step` themselves."""

    def apply_gradients(self,
                        grads_and_vars: Iterable[Tuple[tf.Tensor, tf.Variable]],
                        global_step: Optional[tf.Variable] = None,
                        name: Optional[str] = None) -> tf.Operation:
        """Updates the variables; `global_step` is accepted and left alone, as in the original."""
        del global_step
        return super().apply_gradients(grads_and_vars, name=name)

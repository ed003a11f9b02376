"""The model as the engine sees it: a function from features to outputs."""

from typing import Callable, Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

import modeling


class Outputs(NamedTuple):
    """The outputs of a model for one replica's batch of b examples."""
    loss: Optional[tf.Tensor]  # scalar, the mean over the batch; None without labels
    # Each [b, ...], one row per example. Rows may be longer in one batch than in another, as those
    # of predictions per token are.
    predictions: Dict[str, tf.Tensor]


class Mode(NamedTuple):
    """What a model is built for, and how it computes."""
    is_training: bool
    # Integers [2] that determine dropout, from the run's seed, step, replica and micro-batch; None
    # in inference.
    dropout_seed: Optional[tf.Tensor] = None
    computation: modeling.Computation = modeling.DEFAULT_COMPUTATION  # how to compute the encoder


INFERENCE = Mode(is_training=False)

# (features, mode) -> Outputs. Builds the model with get_variable, the same in every replica.
Forward = Callable[[Dict[str, tf.Tensor], Mode], Outputs]

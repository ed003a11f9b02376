"""The model as the engine sees it: a function from features to outputs."""

from typing import Callable, Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf


class Outputs(NamedTuple):
    """The outputs of a model for one replica's batch of b examples."""
    loss: Optional[tf.Tensor]  # scalar, the mean over the batch; None without labels
    predictions: Dict[str, tf.Tensor]  # each [b, ...], one row per example


# (features, is_training, dropout_seed) -> Outputs. Builds the model with get_variable, in the
# same way in every replica. `dropout_seed` is an integer tensor [2] that determines dropout: a
# function of the run's seed, the step and the replica. It is None except in training.
Forward = Callable[[Dict[str, tf.Tensor], bool, Optional[tf.Tensor]], Outputs]

"""What a capability hands the engine: a function from features to outputs."""

from typing import Callable, Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf


class Outputs(NamedTuple):
    """What a model makes of one replica's batch of b examples."""
    loss: Optional[tf.Tensor]  # scalar mean over the batch; None where there are no labels
    predictions: Dict[str, tf.Tensor]  # each [b, ...], one row per example


# (features, is_training, dropout_seed) -> Outputs. Builds the model with get_variable,
# the same in every replica. `dropout_seed` is an integer tensor [2], which makes
# dropout a function of run seed, step and replica; None where nothing is trained.
Forward = Callable[[Dict[str, tf.Tensor], bool, Optional[tf.Tensor]], Outputs]

"""The engine's interface of a model: a function from features to outputs."""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from engine.data.batches import Source


class Pooled(NamedTuple):
    """A loss over all n examples of a step, such as a contrastive one: each example is a negative for the others."""
    vectors: tf.Tensor  # float32 [b, w]: all that the loss needs of the batch's examples
    # (the vectors of all examples of the step [n, w], in the plan's order) → mean loss, scalar.
    loss: Callable[[tf.Tensor], tf.Tensor]


class Outputs(NamedTuple):
    """The outputs of a model for one replica's batch of b examples."""
    loss: Optional[tf.Tensor]  # scalar, the mean over the batch; None without labels
    # Each [b, ...], one row per example. The length of rows may differ between batches, as it does
    # for predictions per token.
    predictions: Dict[str, tf.Tensor]
    pooled: Optional[Pooled] = None  # replaces `loss` in training


class Mode(NamedTuple):
    """Training or inference, dropout, and how to compute."""
    is_training: bool
    # Integers [2] that determine dropout, from the run's seed, step, replica and micro-batch; None
    # in inference.
    dropout_seed: Optional[tf.Tensor] = None
    computation: modeling.Computation = modeling.DEFAULT_COMPUTATION  # how to compute the encoder


class Baseline(NamedTuple):
    """The best constant prediction: what a model reaches that learns nothing from its inputs."""
    description: str  # its name in messages
    # (the examples of a step, [b]) → its loss, in the units of the model's loss of that step.
    loss: Callable[[np.ndarray], float]


INFERENCE = Mode(is_training=False)

# (features, mode) -> Outputs. Builds the model with get_variable, the same in every replica: in training,
# its operations in the first one are copied for the others. So only `mode` tells the replicas apart, and
# only its seed makes random numbers.
Forward = Callable[[Dict[str, tf.Tensor], Mode], Outputs]


class FittedLayer(NamedTuple):
    """An output layer that was fitted before the training."""
    values: Mapping[str, np.ndarray]  # by the names of variables; {}: it starts at random
    summary: Mapping[str, Any]  # JSON values for the run's record: how good its answers are


class Training(NamedTuple):
    """What a model is trained on, and the loss."""
    num_examples: int
    content_hash: str  # identifies the data
    forward: Forward
    make_source: Callable[[], Source]  # called only if something is left to train
    # (the source, the numbers of the examples that the training sees) → with more features of these.
    complete: Callable[[Source, np.ndarray], Source] = lambda source, examples: source
    facts: Mapping[str, Any] = {}  # identify the run, in addition to those of the model
    description: Mapping[str, Any] = {}  # entries of task.json that only the data determine
    # The word embeddings are also output weights, so their gradient has all rows.
    ties_embeddings: bool = False
    baseline: Optional[Baseline] = None  # a training whose loss is not below it learns nothing
    # (learning rate) → a new output layer, fitted before the first step, or None; None: this kind has none to fit.
    fit: Optional[Callable[[float], Optional[FittedLayer]]] = None
    least_batch: int = 1  # examples of a step; 2: the loss compares them with each other
    loss_unit: float = 1.0  # factor from the loss to the one that logs and `baseline` show

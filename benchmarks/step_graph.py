"""The graph of a training or prediction step, for cards that need not be there, with all sizes known."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Set

import modeling
import optimization
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.devices.devices import Devices, dtype_of
from engine.model import Forward, Mode
from engine.training import pool
from engine.training.settings import TrainingSettings
from pretraining import model as pretraining_model
from similarity import model as similarity_model
from tagging import model as tagging_model

import tensorflow.compat.v1 as tf

VOCAB_SIZE = 30522
MASKED = 20  # positions of an example, in pretraining
FINE_TUNING, PRETRAINING, PREDICTION = "fine-tuning", "pretraining", "prediction"
SIMILARITY = "similarity"  # of pairs, two texts of the same length
TAGGING = "tagging"  # each token is a word
CRF = "tagging with a CRF"


class Workload(NamedTuple):
    """A step of a BERT with a feed-forward width of 4 * hidden and heads of 64."""
    layers: int
    hidden: int
    batch_size: int  # examples per card
    length: int  # tokens of each
    task: str = FINE_TUNING
    precision: str = "float32"
    transfer: Optional[str] = None  # type of gradients in transfer; None: a training's default
    xla: bool = False
    cards: int = 1
    freeze_layers: int = 0
    micro_batches: int = 1  # each of batch_size examples


def operations_of(workload: Workload) -> List[tf.Operation]:
    """All operations that a step runs, of a graph of their own."""
    with tf.Graph().as_default():
        names = tuple(f"/gpu:{card}" for card in range(workload.cards))
        strategy = Devices(names, "GPU", "nccl" if workload.cards > 1 else "one_device",
                           tf.ConfigProto()).strategy()
        with strategy.scope():
            results = strategy.experimental_local_results(
                strategy.extended.call_for_each_replica(lambda: (
                    _predictions(workload) if workload.task == PREDICTION
                    else train_op(workload, features_of(workload)))))
        return list(needed([getattr(result, "op", result) for result in results]))


def needed(operations: Iterable[tf.Operation], *, with_control: bool = True) -> Set[tf.Operation]:
    """All that runs for these to run; without control inputs, what their results are computed from."""
    seen, waiting = set(), list(operations)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
            waiting += op.control_inputs if with_control else ()
    return seen


def train_op(workload: Workload, features: Dict[str, tf.Tensor]) -> tf.Operation:
    """A training step as the loop makes it."""
    tf.train.get_or_create_global_step()
    mode = Mode(is_training=True, dropout_seed=tf.constant([1, 2], tf.int64),
                computation=modeling.Computation(
                    dtype=dtype_of(workload.precision), compiled=workload.xla,
                    on_cards=True))
    settings = TrainingSettings(precision=workload.precision, gradient_transfer=workload.transfer,
                                freeze_layers=workload.freeze_layers)
    loss_scale = optimization.LossScale.create() if settings.scales_loss else None
    forward = _forward(workload)
    values = checkpoints.InitialValues(None, 0, is_frozen=settings.freezes)

    count, size = workload.micro_batches, workload.batch_size

    def part(values: tf.Tensor, index) -> tf.Tensor:
        rows = values[index * size:(index + 1) * size]
        rows.set_shape([size, *values.shape[1:]])
        return rows

    def loss_of(index):
        own = {name: x if count == 1 else part(x, index) for name, x in features.items()}
        with values.scope():
            return forward(own, mode)
    _, gradients = optimization.mean_gradients(
        pool.Loss(loss_of, count, 0), count, loss_scale and tf.convert_to_tensor(loss_scale.value),
        compiled=workload.xla)
    return optimization.create_update(
        gradients, 1e-4, 10, 1, loss_scale=loss_scale, compiled=workload.xla,
        transfer_dtype=tf.as_dtype(settings.transfer)).operation


def _predictions(workload: Workload) -> tf.Operation:
    mode = Mode(is_training=False, dropout_seed=None, computation=modeling.Computation(
        dtype=dtype_of(workload.precision), compiled=workload.xla, on_cards=True,
        cast=_cast_when_restored))
    predictions = _forward(workload)(features_of(workload), mode).predictions
    return tf.group(*predictions.values())


def _cast_when_restored(weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Stands for the copy of a weight that `engine.inference` makes before the first step."""
    return weight if weight.dtype == dtype else tf.placeholder(dtype, weight.shape)


def _forward(workload: Workload) -> Forward:
    config = modeling.BertConfig(
        VOCAB_SIZE, workload.hidden, workload.layers, workload.hidden // 64, 4 * workload.hidden,
        type_vocab_size=2)
    if workload.task == PRETRAINING:
        return pretraining_model.forward_of(config, next_sentences=True)
    if workload.task == SIMILARITY:
        return similarity_model.training_forward_of(config, "mean", similarity_model.Objective(
            similarity_model.RANKING), 2)
    if workload.task in (TAGGING, CRF):
        return tagging_model.forward_of(config, tagging_model.Tagger(
            tagging_model.TagSet(("A", "B", "C"), "iob2"), crf=workload.task == CRF))
    return classifier.forward_of(config, 2)


def features_of(workload: Workload) -> Dict[str, tf.Tensor]:
    """Placeholders for a step's features."""
    size = workload.batch_size * workload.micro_batches
    if workload.task == SIMILARITY:
        shapes = {**dict.fromkeys(("anchor_ids", "anchor_mask"), [size, workload.length]),
                  **dict.fromkeys(("candidate_ids", "candidate_mask"), [size, 1, workload.length]),
                  "keys": [size, 2, 2], "scores": [size]}
        return {name: tf.placeholder(tf.float32 if name in ("keys", "scores") else tf.int32, shape)
                for name, shape in shapes.items()}
    shapes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [size, workload.length])
    if workload.task == FINE_TUNING:
        shapes["label_ids"] = [size]
    elif workload.task in (TAGGING, CRF):
        shapes.update(dict.fromkeys(("first_pieces", "label_ids"), [size, workload.length]),
                      num_words=[size], weights=[size])
    elif workload.task == PRETRAINING:
        shapes.update(masked_lm_positions=[size, MASKED], masked_lm_ids=[size, MASKED],
                      masked_lm_weights=[size, MASKED], masked_lm_mean_weight=[size],
                      next_sentence_labels=[size])
    placeholders = {name: tf.placeholder(tf.float32 if "weight" in name else tf.int64, shape)
                    for name, shape in shapes.items()}
    if workload.task in (TAGGING, CRF):  # windows are whole
        placeholders.update(dict.fromkeys(("opens", "closes"), tf.ones([size])))
    return placeholders

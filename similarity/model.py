"""BERT with a vector for each text, and in training the loss over the vectors of a step."""

import dataclasses
from typing import Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs, Pooled
from engine.settings import REFUSED, setting
from similarity import losses

RANKING, SCORE = LOSSES = ("ranking", "score")


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a training minimizes."""
    topic = "Similarity"
    loss: Optional[str] = setting(
        None, "ranking: an anchor's positive before all other texts of the step. score: pairs with a "
        "higher score before others (CoSENT). Default: score if the training file has scores.",
        choices=LOSSES, change=REFUSED)
    temperature: float = setting(
        0.05, "What similarities are divided by in the loss; the lower, the more the most similar "
        "negatives count.", positive=True, change=REFUSED)
    symmetric: bool = setting(
        False, "With --loss=ranking: also rank each positive's anchor before all others.",
        change=REFUSED)
    spread_duplicates: bool = setting(
        True, "With --loss=ranking: do not put examples with an equal anchor or positive into the same "
        "step, where there is another place for them. They would not be negatives of each other.",
        change=REFUSED)


def forward_of(config: modeling.BertConfig, pooling: str) -> Forward:
    """A model without a loss, which predicts "vectors", float32 [b, D], of norm 1, and "norms", [b]: of before.

    Its features are input_ids, input_mask and segment_ids, int32 [b, t].

    Args:
        pooling: one of `bert.POOLINGS`.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        vectors = _vectors(config, features, mode, pooling)
        return Outputs(None, {"vectors": tf.nn.l2_normalize(vectors, -1), "norms": tf.norm(vectors, axis=-1)})
    return forward


def _vectors(config: modeling.BertConfig, features: Dict[str, tf.Tensor], mode: Mode,
             pooling: str) -> tf.Tensor:
    states = tf.cast(bert.build(config, features, mode).get_sequence_output(), tf.float32)
    return bert.pooled(states, features["input_mask"], pooling)


def training_forward_of(config: modeling.BertConfig, pooling: str, objective: Objective,
                        num_texts: int, sizes: Sequence[int] = ()) -> Forward:
    """The loss over all examples of a step, of the features of `TextSet.training_source`.

    Args:
        num_texts: of an example, with its own positive.
        sizes: of vectors, see `losses.of_sizes`.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        batch_size = features["scores"].shape.as_list()[0]
        with tf.variable_scope(tf.get_variable_scope()):  # whose end gives the name "bert" free
            anchors = _vectors(config, _encoded(features, "anchor"), mode, pooling)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            candidates = _vectors(
                config, _encoded(features, "candidate"), _with_other_masks(mode), pooling)
        parts = [anchors, tf.reshape(candidates, [batch_size, -1]),
                 tf.reshape(features["keys"], [batch_size, -1]), features["scores"][:, tf.newaxis]]
        rows = tf.concat(parts, 1)
        rows.set_shape([batch_size, num_texts * (config.hidden_size + 2) + 1])
        return Outputs(None, {}, Pooled(rows, lambda pool: _loss(
            pool, num_texts, config.hidden_size, objective, sizes)))
    return forward


def _encoded(features: Dict[str, tf.Tensor], texts: str) -> Dict[str, tf.Tensor]:
    """The encoder's features of the anchors or of the candidates, a row each."""
    ids, mask = features[f"{texts}_ids"], features[f"{texts}_mask"]
    rows = [-1, tf.shape(ids)[-1]]
    ids = tf.reshape(ids, rows)
    return {"input_ids": ids, "input_mask": tf.reshape(mask, rows),
            "segment_ids": tf.zeros_like(ids)}


def _with_other_masks(mode: Mode) -> Mode:
    """The mode of candidates: the same text as an anchor shall get another dropout mask."""
    if mode.dropout_seed is None:
        return mode
    with tf.device("/cpu:0"):  # as `loop` makes it
        # Beyond all runs' seeds and replicas.
        return mode._replace(dropout_seed=mode.dropout_seed + tf.constant([2**60, 0], tf.int64))


def _loss(pool: tf.Tensor, num_texts: int, size: int, objective: Objective, sizes: Sequence[int]) -> tf.Tensor:
    count, end = pool.shape.as_list()[0], num_texts * size
    vectors = tf.reshape(pool[:, :end], [count, num_texts, size])
    keys, scores = tf.reshape(pool[:, end:-1], [count, num_texts, 2]), pool[:, -1]

    def loss(vectors: tf.Tensor) -> tf.Tensor:
        if objective.loss == SCORE:
            return losses.score(vectors, scores, objective.temperature)
        return losses.ranking(vectors, keys, objective.temperature, objective.symmetric)

    return losses.of_sizes(vectors, sizes or [size], loss)

"""BERT as it is pretrained: the losses of masked words and of next sentences, and its guesses."""

from typing import Dict, Tuple

import tensorflow.compat.v1 as tf

import modeling
from encoder import pretraining_heads
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, *, next_sentences: bool) -> Forward:
    """The model, with a next-sentence head or without.

    Its features are those of `records.RecordSet.source`. Its predictions, each [b]: sums
    over an example's masked tokens, "masked_lm_loss", "masked_lm_correct" and
    "masked_lm_weight"; of its second sentence, "next_sentence_loss" and
    "next_sentence_correct".

    The loss of a batch is a mean over its examples: of each one's next-sentence loss, and
    of the sum of its masked tokens' losses over what an example of the step weighs on
    average. With that, N replicas and k micro-batches of B have the loss of one batch of
    N * k * B, however many masked tokens each of them holds.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = modeling.BertModel(
            config=config,
            is_training=mode.is_training,
            input_ids=features["input_ids"],
            input_mask=features["input_mask"],
            token_type_ids=features["segment_ids"],
            dropout_seed=mode.dropout_seed,
            computation=mode.computation)
        # Cast, because GPUs leave much of what is done with int32 to the host.
        states, pooled = _states(model, tf.cast(features["masked_lm_positions"], tf.int64))
        predictions = _masked_words(states, model.get_embedding_table(), features, config)
        if next_sentences:
            labels = tf.cast(features["next_sentence_labels"], tf.int64)
            predictions.update(_next_sentences(pooled, labels, config))
        loss = None
        if "masked_lm_mean_weight" in features:
            losses = predictions["masked_lm_loss"] / features["masked_lm_mean_weight"]
            if next_sentences:
                losses += predictions["next_sentence_loss"]
            loss = tf.reduce_mean(losses)
        return Outputs(loss=loss, predictions=predictions)
    return forward


def _states(model: modeling.BertModel, positions: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The last states at `positions` [b, p], [b, p, D], and the pooled output, [b, D].

    These and the first token's are all that the heads read: the last layer runs for them alone.
    """
    places = tf.concat([tf.zeros_like(positions[:, :1]), positions], axis=1)
    states = model.get_sequence_output_at(places)
    return states[:, 1:], model.pool(states[:, 0])


def _masked_words(states: tf.Tensor, embedding_table: tf.Tensor, features: Dict[str, tf.Tensor],
                  config: modeling.BertConfig) -> Dict[str, tf.Tensor]:
    ids, weights = tf.cast(features["masked_lm_ids"], tf.int64), features["masked_lm_weights"]
    logits = pretraining_heads.masked_lm_logits(
        modeling.reshape_to_matrix(states), embedding_table, config)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(ids, [-1]), logits=logits)
    guesses = tf.reshape(tf.argmax(logits, axis=-1), tf.shape(ids))
    return {
        "masked_lm_loss": tf.reduce_sum(tf.reshape(losses, tf.shape(ids)) * weights, axis=1),
        "masked_lm_correct": tf.reduce_sum(
            tf.cast(tf.equal(guesses, ids), tf.float32) * weights, axis=1),
        "masked_lm_weight": tf.reduce_sum(weights, axis=1)}


def _next_sentences(pooled: tf.Tensor, labels: tf.Tensor,
                    config: modeling.BertConfig) -> Dict[str, tf.Tensor]:
    logits = pretraining_heads.next_sentence_logits(pooled, config)
    guesses = tf.argmax(logits, axis=-1)
    return {
        "next_sentence_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits),
        "next_sentence_correct": tf.cast(tf.equal(guesses, labels), tf.float32)}

"""The pretraining model: losses and predictions of masked tokens and next sentences."""

from typing import Dict

import tensorflow.compat.v1 as tf

from replication import graph_functions
import modeling
from encoder import bert, pretraining_heads
from engine.model import Forward, Mode, Outputs


def forward_of(config: modeling.BertConfig, *, next_sentences: bool) -> Forward:
    """The pretraining model, with or without a next-sentence head.

    The features are those of `data.RecordSet.source`. The predictions are [b] each: the sums over
    an example's masked tokens "masked_lm_loss", "masked_lm_correct" and "masked_lm_weight"; and
    "next_sentence_loss" and "next_sentence_correct".

    The loss of an example is its next-sentence loss plus its masked-LM loss, which is the sum
    over its masked tokens divided by the average weight of an example in the whole step. The loss
    of a batch is the mean over its examples. So N replicas with k micro-batches of B examples have
    the loss of one batch of N * k * B, however the masked tokens are distributed over them.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = bert.build(config, features, mode, reads_pooler=next_sentences)
        # Cast, because TensorFlow runs many int32 operations on the host.
        positions = tf.cast(features["masked_lm_positions"], tf.int64)
        # The heads read the states of the first token and of these alone, so the last layer
        # computes only them.
        states = model.get_sequence_output_at(
            tf.concat([tf.zeros_like(positions[:, :1]), positions], axis=1))
        predictions = _masked_words(states[:, 1:], model.get_embedding_table(), features, config,
                                    mode.computation)
        if next_sentences:
            labels = tf.cast(features["next_sentence_labels"], tf.int64)
            predictions.update(_next_sentences(model.pool(states[:, 0]), labels, config))
        loss = None
        if "masked_lm_mean_weight" in features:
            losses = predictions["masked_lm_loss"] / features["masked_lm_mean_weight"]
            if next_sentences:
                losses += predictions["next_sentence_loss"]
            loss = tf.reduce_mean(losses)
        return Outputs(loss=loss, predictions=predictions)
    return forward


def _masked_words(states: tf.Tensor, embedding_table: tf.Tensor, features: Dict[str, tf.Tensor],
                  config: modeling.BertConfig, computation: modeling.Computation
                  ) -> Dict[str, tf.Tensor]:
    ids, weights = tf.cast(features["masked_lm_ids"], tf.int64), features["masked_lm_weights"]
    logits = pretraining_heads.masked_lm_logits(
        modeling.reshape_to_matrix(states), embedding_table, config, computation)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(ids, [-1]), logits=logits)
    predicted = tf.reshape(tf.argmax(logits, axis=-1), tf.shape(ids))
    return {
        "masked_lm_loss": graph_functions.sum_over(
            tf.reshape(losses, tf.shape(ids)) * weights, 1),
        "masked_lm_correct": tf.reduce_sum(
            tf.cast(tf.equal(predicted, ids), tf.float32) * weights, axis=1),
        "masked_lm_weight": tf.reduce_sum(weights, axis=1)}


def _next_sentences(pooled: tf.Tensor, labels: tf.Tensor,
                    config: modeling.BertConfig) -> Dict[str, tf.Tensor]:
    logits = pretraining_heads.next_sentence_logits(pooled, config)
    predicted = tf.argmax(logits, axis=-1)
    return {
        "next_sentence_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits),
        "next_sentence_correct": tf.cast(tf.equal(predicted, labels), tf.float32)}

"""BERT with a layer that scores the tags of each word, and the decoding of their best sequence."""

from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.model import Forward, Mode, Outputs
from tagging import decoding
from tagging.data import TagSet
from tagging.decoding import Scores, Words


class Tagger(NamedTuple):
    """What is on the encoder."""
    tags: TagSet
    crf: bool  # trains the scores of transitions, and the likelihood of whole sequences


def forward_of(config: modeling.BertConfig, tagger: Tagger, max_length: int, *,
               gives_scores: bool = False) -> Forward:
    """The model and its loss. Its features are those of `data.SentenceSet.source`.

    Its predictions, with n = `max_length` - 2, the most words that a window has: "labels", int32
    [b, n], the best sequence that the scheme allows; "loss", float32 [b], the sum of the losses of
    a window's words; and with `gives_scores`, what `decode_long` needs: "emissions", float32
    [b, n, labels], and, of a CRF, "scores", float32 [b, labels + 2, labels].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        words, trained = words_of(config, tagger, features, mode)
        losses = _losses(words, features["label_ids"], trained, features.get("word_weights"))
        loss = tf.reduce_mean(losses * features["weights"])
        if mode.is_training:
            return Outputs(loss=loss, predictions={})
        labels = best_labels(tagger, words, trained)
        predictions = {"labels": _of_fixed_length(labels, max_length - 2), "loss": losses}
        if gives_scores:
            predictions["emissions"] = _of_fixed_length(words.emissions, max_length - 2)
        if gives_scores and trained:
            rows = tf.concat([trained.pairs, [trained.first], [trained.last]], axis=0)
            predictions["scores"] = tf.tile(rows[tf.newaxis], [tf.shape(losses)[0], 1, 1])
        return Outputs(loss=loss, predictions=predictions)
    return forward


def words_of(config: modeling.BertConfig, tagger: Tagger, features: Dict[str, tf.Tensor],
             mode: Mode) -> Tuple[Words, Optional[Scores]]:
    """The words of windows with the emissions of their labels, and the trained scores of a CRF.

    Args:
        features: those of `data.SentenceSet.source`, but the labels and weights.
    """
    num_labels = len(tagger.tags.labels)
    encoder = bert.build(config, features, mode)
    emissions = _emissions(encoder.get_sequence_output_at(features["first_pieces"]), num_labels,
                           config.hidden_dropout_prob if mode.is_training else 0.0,
                           mode.dropout_seed)
    words = Words(emissions, features["num_words"], features["opens"], features["closes"])
    return words, decoding.crf_scores(num_labels) if tagger.crf else None


def best_labels(tagger: Tagger, words: Words, trained: Optional[Scores]) -> tf.Tensor:
    """The labels of the best sequence that the scheme allows, int32 [b, w]."""
    return decoding.best_labels(words, decoding.constrained(tagger.tags.transitions, trained))


def _emissions(states: tf.Tensor, num_labels: int, dropout_prob: float,
               dropout_seed: Optional[tf.Tensor]) -> tf.Tensor:
    """The scores of each word's labels, [b, t, labels]."""
    hidden_size = states.shape.as_list()[-1]
    weights = tf.get_variable("output_weights", [num_labels, hidden_size],
                              initializer=tf.truncated_normal_initializer(stddev=0.02))
    bias = tf.get_variable("output_bias", [num_labels], initializer=tf.zeros_initializer())
    states = modeling.dropout(states, dropout_prob, dropout_seed=dropout_seed)
    flat = tf.matmul(tf.reshape(states, [-1, hidden_size]), weights, transpose_b=True) + bias
    return tf.reshape(flat, tf.concat([tf.shape(states)[:2], [num_labels]], axis=0))


def _losses(words: Words, label_ids: tf.Tensor, trained: Optional[Scores],
            word_weights: Optional[tf.Tensor]) -> tf.Tensor:
    """The sum of the losses of each window's words, [b]; of a CRF, the window's.

    Args:
        word_weights: [b, t], 0 where there is no word; by default those there are have 1.
    """
    if trained:
        return -decoding.log_likelihood(words, label_ids, trained)
    if word_weights is None:
        word_weights = decoding.mask_of_words(words.num_words, tf.shape(label_ids)[1])
    num_labels = words.emissions.shape.as_list()[-1]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(label_ids, [-1]), logits=tf.reshape(words.emissions, [-1, num_labels]))
    return tf.reduce_sum(tf.reshape(losses, tf.shape(word_weights)) * word_weights, axis=1)


def _of_fixed_length(values: tf.Tensor, length: int) -> tf.Tensor:
    """Values [b, t, ...], cut or padded with zeros to [b, length, ...]."""
    values = values[:, :length]
    missing = [[0, 0], [0, length - tf.shape(values)[1]]] + [[0, 0]] * (values.shape.ndims - 2)
    return tf.pad(values, missing)


class LongDecoder:
    """Decodes sentences that are longer than a window, one at a time, on the CPU.

    Use it as a context manager: it holds a session.
    """

    def __init__(self, tags: TagSet):
        labels = len(tags.labels)
        with tf.Graph().as_default() as graph:
            self._emissions = tf.placeholder(tf.float32, [1, None, labels])
            self._scores = tf.placeholder_with_default(
                np.zeros((labels + 2, labels), np.float32), [labels + 2, labels])
            scores = Scores(self._scores[:labels], self._scores[labels], self._scores[labels + 1])
            words = Words(self._emissions, tf.shape(self._emissions)[1:2], tf.ones([1]),
                          tf.ones([1]))
            self._labels = decoding.best_labels(
                words, decoding.constrained(tags.transitions, scores))[0]
        self._session = tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0}))

    def __enter__(self) -> "LongDecoder":
        return self

    def __exit__(self, *exception) -> None:
        self._session.close()

    def decode(self, emissions: np.ndarray, scores: Optional[np.ndarray]) -> np.ndarray:
        """The best labels of a sentence, int32 [words].

        Args:
            emissions: [words, labels].
            scores: "scores" of one window, if the model is a CRF.
        """
        feeds = {self._emissions: emissions[np.newaxis]}
        if scores is not None:
            feeds[self._scores] = scores
        return self._session.run(self._labels, feeds)

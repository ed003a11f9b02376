"""BERT with a layer that scores the tags of each word, and the decoding of their best sequence."""

from typing import Dict, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from replication import graph_functions
import modeling
from encoder import bert
from encoder.tag_set import TagSet
from engine.model import Forward, Mode, Outputs
from tagging import decoding, schemes
from tagging.decoding import Scores, Words


class Tagger(NamedTuple):
    """The head on the encoder."""
    tags: TagSet
    crf: bool  # trains the scores of transitions, and the likelihood of whole sequences


def forward_of(config: modeling.BertConfig, tagger: Tagger) -> Forward:
    """The model and its loss. Its features are those of `data.SentenceSet.source`.

    Its predictions: "labels", int32 [b, t], the best sequence that the scheme allows, and "loss",
    float32 [b], the sum of the losses of a window's words.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        words, trained = words_of(config, tagger, features, mode)
        losses = _losses(words, features["label_ids"], trained)
        loss = tf.reduce_mean(losses * features["weights"])
        if mode.is_training:
            return Outputs(loss=loss, predictions={})
        return Outputs(loss=loss, predictions={
            "labels": best_labels(tagger, words, trained), "loss": losses})
    return forward


def words_of(config: modeling.BertConfig, tagger: Tagger, features: Dict[str, tf.Tensor],
             mode: Mode) -> Tuple[Words, Optional[Scores]]:
    """The words of windows with the emissions of their labels, and the trained scores of a CRF.

    Args:
        features: those of `data.SentenceSet.source`, but the labels and weights.
    """
    num_labels = len(tagger.tags.labels)
    encoder = bert.build(config, features, mode)
    states = encoder.get_sequence_output_at(features["first_pieces"])
    emissions = bert.scores(states, num_labels, config, mode)
    emissions = tf.reshape(emissions, tf.concat([tf.shape(states)[:2], [num_labels]], axis=0))
    words = Words(emissions, features["num_words"], features["opens"], features["closes"],
                  most_words=config.max_position_embeddings)
    return words, decoding.crf_scores(num_labels) if tagger.crf else None


def best_labels(tagger: Tagger, words: Words, trained: Optional[Scores]) -> tf.Tensor:
    """The labels of the best sequence that the scheme allows, int32 [b, w]."""
    allowed = schemes.transitions(tagger.tags)
    # A card would wait for the host at each word of the loop, for operations on a few numbers.
    with tf.device("/cpu:0"):
        return decoding.best_labels(words, decoding.constrained(allowed, trained))


def _losses(words: Words, label_ids: tf.Tensor, trained: Optional[Scores]) -> tf.Tensor:
    """The sum of the losses of each window's words, [b]; of a CRF, the window's."""
    if trained:
        return -decoding.log_likelihood(words, label_ids, trained)
    is_word = decoding.mask_of_words(words.num_words, tf.shape(label_ids)[1])
    num_labels = words.emissions.shape.as_list()[-1]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(  # flat: else asserts stay on the CPU
        labels=tf.reshape(label_ids, [-1]), logits=tf.reshape(words.emissions, [-1, num_labels]))
    return graph_functions.sum_over(tf.reshape(losses, tf.shape(is_word)) * is_word, 1)

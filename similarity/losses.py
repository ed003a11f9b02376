"""The losses of texts that belong together, over all examples of a step.

Vectors are [n, s, D]: of each example the anchor's, its positive's and its hard negatives'.
"""

from typing import Callable, Sequence

import tensorflow.compat.v1 as tf

_NEVER = -1e9  # the score of what is no candidate; exp() of it is 0

Loss = Callable[[tf.Tensor], tf.Tensor]


def ranking(vectors: tf.Tensor, keys: tf.Tensor, temperature: float,
            symmetric: bool = False) -> tf.Tensor:
    """The mean cross-entropy of each anchor's positive among all positives and hard negatives.

    (Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply", section 4.4;
    sentence-transformers' MultipleNegativesRankingLoss has 1 / temperature as its scale.) What
    equals an anchor or its positive is no negative of it, nor is the positive of an equal anchor.

    Args:
        vectors: of norm 1.
        keys: [n, s, 2]; equal texts have equal ones.
        symmetric: the mean of this and of the same loss of each positive's anchor among all anchors.
    """
    count, num_texts = vectors.shape.as_list()[:2]

    def joined(values: tf.Tensor) -> tf.Tensor:  # of the candidates: positives, hard negatives
        return tf.concat([values[:, text] for text in range(1, num_texts)], 0)

    scores = tf.matmul(vectors[:, 0], joined(vectors), transpose_b=True) / temperature
    anchors, positives, candidates = keys[:, 0], keys[:, 1], joined(keys)
    equal = _equal(positives, candidates) | _equal(anchors, candidates)
    of_equal_anchors = tf.pad(_equal(anchors, anchors), [[0, 0], [0, (num_texts - 2) * count]])
    # Not tf.eye and tf.linalg.diag_part, which read constants back from the card.
    number = tf.cumsum(tf.ones([(num_texts - 1) * count]))
    own = tf.equal(number[:count, tf.newaxis], number)
    no_negative = (equal | of_equal_anchors) & ~own
    scores = tf.where(no_negative, tf.fill(tf.shape(scores), _NEVER), scores)

    def loss(scores: tf.Tensor) -> tf.Tensor:
        own_scores = tf.reduce_sum(
            scores[:, :count] * tf.cast(own[:, :count], tf.float32), axis=1)
        return tf.reduce_mean(tf.reduce_logsumexp(scores, axis=1) - own_scores)

    if not symmetric:
        return loss(scores)
    return (loss(scores) + loss(tf.transpose(scores[:, :count]))) / 2


def _equal(keys: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Which of the keys [n, 2] and [m, 2] are equal, [n, m]."""
    return tf.reduce_all(tf.equal(tf.expand_dims(keys, 1), others), axis=-1)


def score(vectors: tf.Tensor, scores: tf.Tensor, temperature: float) -> tf.Tensor:
    """CoSENT: a pair with a higher score than another shall have a higher cosine.

    log(1 + sum over pairs i, j with score_i > score_j of exp((cos_j - cos_i) / temperature))
    (Su, https://kexue.fm/archives/8847). It is one loss of all pairs, not a mean.

    Args:
        vectors: of norm 1, two for each pair.
        scores: [n].
    """
    cosines = tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=1) / temperature
    differences = cosines[tf.newaxis, :] - cosines[:, tf.newaxis]
    is_higher = scores[:, tf.newaxis] > scores[tf.newaxis, :]
    terms = tf.where(is_higher, differences, tf.fill(tf.shape(differences), _NEVER))
    return tf.reduce_logsumexp(tf.concat([tf.reshape(terms, [-1]), tf.zeros([1])], 0))


def of_sizes(vectors: tf.Tensor, sizes: Sequence[int], loss: Loss) -> tf.Tensor:
    """The mean loss of the first so many components of the vectors, made as long as 1, of all sizes.

    (Kusupati et al., "Matryoshka Representation Learning", 2022, with equal weights.)
    """
    losses = [loss(tf.nn.l2_normalize(vectors[:, :, :size], -1)) for size in sizes]
    return tf.add_n(losses) / len(losses)

"""The best sequence of labels that a scheme allows, and the likelihood of one in a CRF.

The score of a sequence of labels is the sum of its labels' emissions, and of the scores of its
transitions, its first label and its last one (a linear-chain CRF). Everything is computed in the
graph, in batches, with a step of a loop for each word; what the loops collect are floats, since
GPUs have no arrays of integers.
"""

from typing import NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from graph_functions import gather, sum_over
from tagging.schemes import Transitions

# The score of what is forbidden. Not infinite: it is multiplied by 0 where a window is cut from a
# sentence's middle.
_FORBIDDEN = -1e30


class Scores(NamedTuple):
    """What is added to the emissions, float32."""
    pairs: tf.Tensor  # [from, to]
    first: tf.Tensor  # [labels]
    last: tf.Tensor  # [labels]


class Words(NamedTuple):
    """The words of b windows, padded to w > 1."""
    emissions: tf.Tensor  # float32 [b, w, labels]
    num_words: tf.Tensor  # int32 [b], at least 1
    opens: tf.Tensor  # float32 [b], 1 if the window has its sentence's first word, else 0
    closes: tf.Tensor  # float32 [b], likewise the last


def crf_scores(num_labels: int) -> Scores:
    """The trained scores of a CRF: variables, at first 0."""
    zeros = tf.zeros_initializer()
    shapes = {"transitions": [num_labels] * 2, "first": [num_labels], "last": [num_labels]}
    return Scores(*(tf.convert_to_tensor(tf.get_variable(f"crf/{name}", shape, initializer=zeros))
                    for name, shape in shapes.items()))


def constrained(allowed: Transitions, scores: Optional[Scores] = None) -> Scores:
    """Scores that no forbidden sequence can win with; of those allowed, they are `scores` or 0."""
    limits = Scores(*(tf.constant(np.where(mask, 0, _FORBIDDEN), tf.float32) for mask in allowed))
    return limits if scores is None else Scores(*map(tf.add, limits, scores))


def best_labels(words: Words, scores: Scores) -> tf.Tensor:
    """The labels of the sequence with the highest score (Viterbi), int32 [b, w].

    What stands after the last word of a window means nothing.
    """
    def step(state: Tuple[tf.Tensor, tf.Tensor], word) -> Tuple[tf.Tensor, tf.Tensor]:
        emissions, is_word = word
        candidates = state[0][:, :, tf.newaxis] + scores.pairs  # [b, from, to]
        best = tf.reduce_max(candidates, axis=1) + emissions
        came_from = tf.cast(tf.argmax(candidates, axis=1), tf.float32)
        return (_choose(is_word, best, state[0]), _choose(is_word, came_from, stays))

    def back(label: tf.Tensor, came_from: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(came_from * tf.one_hot(tf.cast(label, tf.int32), num_labels), axis=1)

    num_labels = scores.pairs.shape.as_list()[0]
    start = _start(words, scores)
    stays = tf.zeros_like(start) + tf.range(num_labels, dtype=tf.float32)
    totals, came_from = tf.scan(step, _later_words(words), (start, stays))
    ends = totals[-1] + words.closes[:, tf.newaxis] * scores.last
    last = tf.cast(tf.argmax(ends, axis=1), tf.float32)
    # From the last word back: tf2onnx keeps the order of the steps of a loop with reverse=True.
    earlier = tf.scan(back, tf.reverse(came_from, [0]), last)
    labels = tf.concat([tf.reverse(earlier, [0]), last[tf.newaxis]], axis=0)
    return tf.cast(tf.transpose(labels), tf.int32)


def log_likelihood(words: Words, label_ids: tf.Tensor, scores: Scores) -> tf.Tensor:
    """The logarithm of the probability of the windows' labels in a CRF, [b].

    That is the score of these labels, less the logarithm of the sum of the exponentials of the
    scores of all sequences (Lafferty, McCallum and Pereira 2001), which the forward algorithm
    adds up.

    Args:
        label_ids: int32 [b, w]; what stands after the last word is not read.
    """
    return _score_of(words, label_ids, scores) - _log_normalizer(words, scores)


def _log_normalizer(words: Words, scores: Scores) -> tf.Tensor:
    def step(index: tf.Tensor, state: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        sums = tf.reduce_logsumexp(
            state[:, :, tf.newaxis] + scores.pairs, axis=1) + emissions.read(index)
        return index + 1, _choose(is_word.read(index), sums, state)

    # Not tf.scan or tf.foldl: cards hand the host the condition of their loops at each word.
    later = _later_words(words)
    count = tf.shape(later[0])[0]
    emissions, is_word = (tf.TensorArray(tf.float32, count).unstack(values) for values in later)
    _, total = tf.while_loop(lambda index, _: index < count, step,
                             [tf.constant(0), _start(words, scores)])
    return tf.reduce_logsumexp(total + words.closes[:, tf.newaxis] * scores.last, axis=1)


def _score_of(words: Words, label_ids: tf.Tensor, scores: Scores) -> tf.Tensor:
    num_labels = scores.pairs.shape.as_list()[0]
    is_word = mask_of_words(words.num_words, tf.shape(label_ids)[1])
    chosen = tf.one_hot(label_ids, num_labels) * is_word[:, :, tf.newaxis]  # [b, w, labels]
    emissions = sum_over(sum_over(words.emissions * chosen, 2), 1)
    # Gathered: a product with one-hot vectors would round the scores to the precision of products.
    moves = gather(tf.reshape(scores.pairs, [-1]), label_ids[:, :-1] * num_labels
                      + label_ids[:, 1:])
    pairs = sum_over(moves * is_word[:, 1:], 1)
    positions = tf.one_hot(words.num_words - 1, tf.shape(label_ids)[1])
    last = tf.reduce_sum(chosen * positions[:, :, tf.newaxis], axis=1)  # [b, labels]
    return (emissions + pairs
            + words.opens * tf.reduce_sum(chosen[:, 0] * scores.first, axis=1)
            + words.closes * tf.reduce_sum(last * scores.last, axis=1))


def mask_of_words(num_words: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """1 where a window has a word, else 0, float32 [b, length].

    tf.sequence_mask compares integers, which GPUs leave to the host.
    """
    number = tf.cumsum(tf.ones([length]))
    return tf.cast(number <= tf.cast(num_words, tf.float32)[:, tf.newaxis], tf.float32)


def _start(words: Words, scores: Scores) -> tf.Tensor:
    """The scores of each label for the first word, [b, labels]."""
    return words.emissions[:, 0] + words.opens[:, tf.newaxis] * scores.first


def _later_words(words: Words) -> Tuple[tf.Tensor, tf.Tensor]:
    """Of all words but the first, the emissions [w - 1, b, labels], and which are there."""
    is_word = mask_of_words(words.num_words, tf.shape(words.emissions)[1])
    return tf.transpose(words.emissions, [1, 0, 2])[1:], tf.transpose(is_word)[1:, :, tf.newaxis]


def _choose(is_word: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """`new` [b, labels] where there is a word, [b, 1], else `old`."""
    return is_word * new + (1.0 - is_word) * old  # GPUs have no stacks of bools

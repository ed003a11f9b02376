"""The best sequence of labels that a scheme allows, and the likelihood of one in a CRF.

The score of a sequence of labels is the sum of its labels' emissions, and of the scores of its
transitions, its first label and its last one (a linear-chain CRF). Everything is computed in the
graph, in batches. Decoding is a loop over the words, on the host. The likelihood is part of each
training step, so cards compute it for all words at once, without a loop.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from replication.graph_functions import gather, sum_over
from tagging.schemes import Transitions

# The score of what is forbidden. Not infinite: it is multiplied by 0 where a window is cut from a
# sentence's middle.
_FORBIDDEN = -1e30
# Words of a block of the normalizer. On two CPU cores 8 take less time than 4, and 16 as much.
_BLOCK = 8


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
    most_words: Optional[int] = None  # not less than w; of a CRF whose emissions have no static w


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
    scores of all sequences (Lafferty, McCallum and Pereira 2001).

    Args:
        label_ids: int32 [b, w]; what stands after the last word is not read.
    """
    return _score_of(words, label_ids, scores) - _log_normalizer(words, scores)


def _log_normalizer(words: Words, scores: Scores) -> tf.Tensor:
    """The logarithm of the sum over all sequences, [b].

    The sum is a product of matrices, one for each word. Those of a block are multiplied in turn, in
    all blocks at once; then the products of neighbouring blocks, in log2(blocks) levels. Values are
    divided by their maxima on the way: a transition that scores 87 less than another vanishes.

    The gradient needs no products of matrices. The whole sum is the product of a vector of all that
    comes before a block, the block, and a vector of all that comes after it; so for each block
    this product has the gradient of the block's own words.
    """
    moves, rates, total = _factors(words, scores)
    size, labels = tf.shape(rates)[0], moves.shape.as_list()[0]
    # The factors of the first words of all blocks, [b, blocks, 1, labels], of the second, and so on.
    blocks = tf.unstack(tf.reshape(rates, [size, -1, _BLOCK, 1, labels]), axis=2)
    fixed_moves, *fixed = map(tf.stop_gradient, (moves, *blocks))
    products, peaks = _through_block(tf.zeros_like(fixed[0]) + fixed_moves, fixed, fixed_moves)
    most_words = words.emissions.shape.as_list()[1] or words.most_words
    whole, levels, more_peaks = _product(products, -(-most_words // _BLOCK))
    total += tf.log(tf.reduce_sum(whole, [1, 2, 3]))
    total += tf.reduce_sum(tf.log(tf.concat(peaks + more_peaks, 1)), [1, 2, 3])
    before, after = map(tf.stop_gradient, _around(levels, size, labels))
    state, _ = _through_block(_moved(before, moves), blocks, moves)
    own = sum_over(tf.squeeze(tf.log(tf.matmul(state, after)), [2, 3]), 1)
    return tf.stop_gradient(total - own) + own


def _factors(words: Words, scores: Scores) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The sum over all sequences, as factors.

    Returns:
        Of transitions, [from, to]: the exponentials, divided by the sums of their rows. These count
        for the word before. So labels of words that are not there, with factors of 1, change nothing.
        Of each word's labels, [b, w, labels] with whole blocks, divided by their maximum.
        The logarithm of what the factors were divided by, [b].
    """
    length = tf.shape(words.emissions)[1]
    is_word = tf.expand_dims(mask_of_words(words.num_words, length + 1), 2)
    is_word, is_followed = is_word[:, :-1], is_word[:, 1:]
    opens, closes = (tf.reshape(x, [-1, 1, 1]) for x in (words.opens, words.closes))
    top = tf.stop_gradient(tf.reduce_max(scores.pairs, axis=1, keepdims=True))
    moves = tf.exp(scores.pairs - top)
    sums = tf.expand_dims(sum_over(moves, 1), 1)
    own = (is_word * words.emissions + is_followed * tf.transpose(top + tf.log(sums))
           + _first_of(length)[:, :, 0] * opens * scores.first
           + (is_word - is_followed) * closes * scores.last)
    peaks = tf.stop_gradient(tf.reduce_max(own, axis=2, keepdims=True))
    missing = (_BLOCK - length % _BLOCK) % _BLOCK  # tf2onnx's remainder of a negative number is another one
    own = tf.pad(own - peaks, [[0, 0], [0, missing], [0, 0]])
    return moves / sums, tf.exp(own), tf.reduce_sum(peaks, [1, 2])


def _moved(states: tf.Tensor, moves: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.matmul(tf.reshape(states, [-1, moves.shape.as_list()[0]]), moves),
                      tf.shape(states))


def _through_block(states: tf.Tensor, block: Sequence[tf.Tensor], moves: tf.Tensor
                   ) -> Tuple[tf.Tensor, List[tf.Tensor]]:
    """Multiplies rows [b, blocks, rows, labels] by the words of their blocks.

    The rows are moved to the first word already. Also returns the maxima that they were divided by.
    """
    # No label comes before the first word: from nowhere, all labels are alike.
    states += _first_of(tf.shape(states)[1]) * (1.0 / moves.shape.as_list()[0] - states)
    peaks = []
    for number, rates in enumerate(block):
        if number:
            states = _moved(states, moves)
        peaks.append(_peaks(states))
        states *= rates / peaks[-1]
    return states, peaks


def _product(products: tf.Tensor, most: int) -> Tuple[tf.Tensor, List[tuple], List[tf.Tensor]]:
    """The product of at most `most` matrices, [b, 1, labels, labels].

    Also returns, of each level, the neighbours and the number of matrices; and what all products were
    divided by.
    """
    size, labels = tf.shape(products)[0], products.shape.as_list()[3]
    levels, peaks = [], []
    while most > 1:
        count = tf.shape(products)[1]
        if (products.shape.as_list()[1] or 1) % 2:  # With a matrix of words that are not there.
            more = tf.fill([size, count % 2, labels, labels], 1.0 / labels)
            products = tf.concat([products, more], 1)
        left, right = tf.unstack(tf.reshape(products, [size, -1, 2, labels, labels]), axis=2)
        levels.append((left, right, count))
        products = tf.matmul(left, right)
        peaks.append(_peaks(products))
        products /= peaks[-1]
        most = -(-most // 2)
    return products, levels, peaks


def _around(levels: Sequence[tuple], size: tf.Tensor, labels: int) -> Tuple[tf.Tensor, tf.Tensor]:
    """Of each block, the products of all before it and of all after it, up to a factor.

    [b, blocks, 1, labels] and [b, blocks, labels, 1].
    """
    before, after = tf.ones([size, 1, 1, labels]), tf.ones([size, 1, labels, 1])
    for left, right, count in reversed(levels):
        moved, back = tf.matmul(before, left), tf.matmul(right, after)
        before = tf.reshape(tf.stack([before, moved / _peaks(moved)], 2), [size, -1, 1, labels])
        after = tf.reshape(tf.stack([back / _peaks(back), after], 2), [size, -1, labels, 1])
        before, after = before[:, :count], after[:, :count]
    return before, after


def _first_of(count: tf.Tensor) -> tf.Tensor:
    """1 for the first, then 0, [1, count, 1, 1]."""
    return tf.reshape(mask_of_words(tf.ones([1]), count), [1, -1, 1, 1])


def _peaks(matrices: tf.Tensor) -> tf.Tensor:
    return tf.stop_gradient(tf.reduce_max(matrices, axis=[2, 3], keepdims=True))


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

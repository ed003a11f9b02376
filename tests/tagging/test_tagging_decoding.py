"""Decoding and the CRF: equal to sums and maxima over all sequences of labels."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from benchmarks import step_graph
from conftest import plain_session
from encoder.tag_set import TagSet
from engine.model import INFERENCE
from tagging import decoding, schemes
from tagging.decoding import Scores, Words

TAGS = TagSet(("A",), "bioes")
LABELS = TAGS.labels  # 5
NUM_WORDS = np.array([4, 1, 3, 2])
OPENS, CLOSES = np.array([1, 1, 0, 0], np.float32), np.array([1, 1, 1, 0], np.float32)


@pytest.fixture
def problem():
    """Emissions [4, 5, 5], a word more than any window has, the labels, and trained scores."""
    generator = np.random.RandomState(5)
    size = len(LABELS)
    return (generator.randn(4, 5, size).astype(np.float32) * 2,
            generator.randint(0, size, (4, 5)).astype(np.int32),
            [generator.randn(*shape).astype(np.float32)
             for shape in ([size, size], [size], [size])])


def words_of(emissions):
    return Words(tf.constant(emissions), tf.constant(NUM_WORDS, tf.int32), tf.constant(OPENS),
                 tf.constant(CLOSES))


def score_of(sequence, window, emissions, scores):
    pairs, first, last = scores
    return (sum(emissions[window, word, label] for word, label in enumerate(sequence))
            + sum(pairs[pair] for pair in zip(sequence, sequence[1:]))
            + OPENS[window] * first[sequence[0]] + CLOSES[window] * last[sequence[-1]])


def is_allowed(sequence, window, allowed):
    return (all(allowed.pairs[pair] for pair in zip(sequence, sequence[1:]))
            and (allowed.first[sequence[0]] or not OPENS[window])
            and (allowed.last[sequence[-1]] or not CLOSES[window]))


def sequences(window):
    return list(itertools.product(range(len(LABELS)), repeat=NUM_WORDS[window]))


@pytest.mark.parametrize("has_crf", (False, True))
def test_the_best_sequence_is_the_best_of_all_that_the_scheme_allows(problem, has_crf):
    emissions, _, trained = problem
    allowed = schemes.transitions(TAGS)
    scores = decoding.constrained(allowed, Scores(*map(tf.constant, trained)) if has_crf else None)
    with plain_session() as session:
        found = session.run(decoding.best_labels(words_of(emissions), scores))
    totals = [score * has_crf for score in trained]
    for window, count in enumerate(NUM_WORDS):
        best = max((one for one in sequences(window) if is_allowed(one, window, allowed)),
                   key=lambda one: score_of(one, window, emissions, totals))
        assert tuple(found[window, :count]) == best


def test_the_likelihood_is_that_of_the_sum_over_all_sequences(problem):
    emissions, label_ids, trained = problem
    likelihood = decoding.log_likelihood(words_of(emissions), tf.constant(label_ids), Scores(*map(tf.constant, trained)))
    with plain_session() as session:
        found = session.run(likelihood)
    np.testing.assert_allclose(found, [
        score_of(label_ids[window, :count], window, emissions, trained)
        - np.logaddexp.reduce([score_of(one, window, emissions, trained) for one in sequences(window)])
        for window, count in enumerate(NUM_WORDS)], atol=1e-5)


def normalizer_in_a_loop(words, scores):
    """The forward algorithm, word by word."""
    def step(total, word):
        emissions, is_word = word
        after = tf.reduce_logsumexp(total[:, :, tf.newaxis] + scores.pairs, axis=1) + emissions
        return is_word * after + (1 - is_word) * total

    is_word = decoding.mask_of_words(words.num_words, tf.shape(words.emissions)[1])
    emissions = tf.transpose(words.emissions, [1, 0, 2])
    start = emissions[0] + words.opens[:, tf.newaxis] * scores.first
    total = tf.scan(step, (emissions[1:], tf.transpose(is_word)[1:, :, tf.newaxis]), start)[-1]
    return tf.reduce_logsumexp(total + words.closes[:, tf.newaxis] * scores.last, axis=1)


@pytest.mark.parametrize("length, labels, spread", [(2, 3, 1), (19, 9, 3), (35, 5, 30)])
def test_the_likelihood_and_its_gradients_are_those_of_a_loop_over_the_words(length, labels, spread):
    """Of whole windows and parts, which fill blocks and do not, and scores of any size."""
    generator, windows = np.random.RandomState(length), 6
    values = [(size * generator.randn(*shape)).astype(np.float32) for size, shape in (
        (spread, [windows, length, labels]), (min(spread, 5), [labels, labels]), (1, [labels]),
        (1, [labels]))]
    flags = generator.randint(0, 2, (2, windows)).astype(np.float32)
    label_ids = tf.constant(generator.randint(0, labels, (windows, length)), tf.int32)
    inputs = [tf.constant(value) for value in values]
    emissions = tf.placeholder_with_default(inputs[0], [None, None, labels])
    num_words = tf.constant(np.linspace(1, length, windows).astype(np.int32))
    words = Words(emissions, num_words, *map(tf.constant, flags), most_words=70)
    scores = Scores(*inputs[1:])
    expected = decoding._score_of(words, label_ids, scores) - normalizer_in_a_loop(words, scores)
    with plain_session() as session:
        own, others = session.run([
            [x, *map(tf.convert_to_tensor, tf.gradients(x, inputs))]
            for x in (decoding.log_likelihood(words, label_ids, scores), expected)])
    for result, other in zip(own, others):
        np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-5 * np.abs(others[0]).max())


def test_a_card_runs_no_loop_over_the_words():
    """Neither in training nor, where the loop decodes on the host, in a prediction."""
    def loops(operations):
        return [op for op in operations if op.type in ("Enter", "While", "StatelessWhile")]

    workload = step_graph.Workload(1, 64, 2, 40, task=step_graph.CRF)
    with tf.device("/gpu:0"):
        loss, predictions = step_graph._forward(workload)(
            step_graph.features_of(workload), INFERENCE)[:2]
        gradients = tf.gradients(loss, tf.trainable_variables("crf"))
    assert not loops(step_graph.needed([x.op for x in gradients]))
    own = loops(step_graph.needed([x.op for x in predictions.values()]))
    assert own and all("CPU" in op.device for op in own)

"""Decoding and the CRF: equal to sums and maxima over all sequences of labels."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from conftest import plain_session
from tagging import decoding, schemes
from tagging.decoding import Scores, Words

LABELS = schemes.labels_of(("A",), "bioes")  # 5
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
    allowed = schemes.transitions(LABELS, "bioes")
    scores = decoding.constrained(allowed, Scores(*map(tf.constant, trained)) if has_crf else None)
    with plain_session() as session:
        found = session.run(decoding.best_labels(words_of(emissions), scores))
    totals = [score * has_crf for score in trained]
    for window, count in enumerate(NUM_WORDS):
        best = max((one for one in sequences(window) if is_allowed(one, window, allowed)),
                   key=lambda one: score_of(one, window, emissions, totals))
        assert tuple(found[window, :count]) == best


def test_the_likelihood_and_its_gradients_are_those_of_the_sum_over_all_sequences(problem):
    emissions, label_ids, trained = problem
    inputs = [tf.constant(emissions), *map(tf.constant, trained)]
    words = words_of(emissions)._replace(emissions=inputs[0])
    likelihood = decoding.log_likelihood(words, tf.constant(label_ids), Scores(*inputs[1:]))
    with plain_session() as session:
        found = session.run(likelihood)
        gradients = session.run([tf.convert_to_tensor(gradient)
                                 for gradient in tf.gradients(likelihood, inputs)])

    def expected(values):
        return np.array([
            score_of(label_ids[window, :count], window, values[0], values[1:])
            - np.logaddexp.reduce([score_of(one, window, values[0], values[1:])
                                   for one in sequences(window)])
            for window, count in enumerate(NUM_WORDS)])

    values = [emissions.astype(np.float64), *(one.astype(np.float64) for one in trained)]
    np.testing.assert_allclose(found, expected(values), atol=1e-5)
    generator = np.random.RandomState(6)
    for position, gradient in enumerate(gradients):
        direction = generator.randn(*values[position].shape)
        ahead, behind = (
            [value + sign * 1e-5 * direction if index == position else value
             for index, value in enumerate(values)] for sign in (1, -1))
        slope = (expected(ahead) - expected(behind)).sum() / 2e-5
        assert (gradient * direction).sum() == pytest.approx(slope, abs=1e-4)
    assert not gradients[0][1, 1:].any()  # words that are not there

"""The losses and their gradients equal those of NumPy, derived by hand, in float64."""

from unittest import mock

import numpy as np
import pytest

from conftest import plain_session
from similarity import capability, losses
from similarity.model import Objective, _loss
from similarity_reference import cosent, of_sizes, ranked

import tensorflow.compat.v1 as tf

COUNT, SIZE, TEMPERATURE = 7, 6, 0.2


def vectors_of(num_texts, seed=0):
    return np.random.RandomState(seed).normal(size=[COUNT, num_texts, SIZE])


def keys_of(num_texts):
    """Numbers of texts [COUNT, num_texts]: equal anchors, equal positives, an anchor as a negative."""
    texts = np.arange(COUNT * num_texts).reshape(COUNT, num_texts)
    texts[3, 1] = texts[0, 1]  # two anchors have the same positive
    texts[5, 0] = texts[2, 0]  # an anchor has two positives
    texts[6, 1] = texts[4, 0]  # an anchor is another one's positive
    texts[1, -1] = texts[5, 1]  # a positive is another anchor's last text
    return texts


def pool_of(vectors, texts, scores):
    """The rows that a step exchanges: hashes are two numbers, which differ in one or both."""
    keys = np.stack([texts // 5, texts % 5], -1)
    return np.concatenate([vectors.reshape(COUNT, -1), keys.reshape(COUNT, -1),
                           scores[:, np.newaxis]], 1).astype(np.float32)


def in_tensorflow(pool, num_texts, objective, sizes=()):
    with tf.Graph().as_default(), plain_session() as session:
        rows = tf.constant(pool)
        loss = _loss(rows, num_texts, SIZE, objective, sizes)
        value, gradient = session.run([loss, tf.gradients(loss, rows)[0]])
    assert not gradient[:, num_texts * SIZE:-1].any()  # of the keys
    return value, gradient[:, :num_texts * SIZE].reshape(COUNT, num_texts, SIZE)


@pytest.mark.parametrize("num_texts, symmetric, sizes", (
    (2, False, ()), (3, True, ()), (4, False, (6, 4, 2)), (2, True, (6, 4, 2))))
def test_the_ranking_loss_is_that_of_all_candidates_but_equal_texts(num_texts, symmetric, sizes):
    vectors, texts = vectors_of(num_texts), keys_of(num_texts)
    value, gradient = in_tensorflow(pool_of(vectors, texts, np.zeros(COUNT)), num_texts, Objective(
        "ranking", TEMPERATURE, symmetric), sizes)
    expected = of_sizes(vectors, sizes or (SIZE,), lambda part: ranked(part, texts, symmetric, TEMPERATURE))
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-5)
    assert np.abs(expected[1]).max() > 0.1


@pytest.mark.parametrize("num_texts, symmetric", ((2, False), (4, True)))
def test_a_training_learns_something_if_its_loss_is_below_that_of_equal_vectors(num_texts, symmetric):
    objective = Objective("ranking", TEMPERATURE, symmetric)
    texts = np.arange(COUNT * num_texts).reshape(COUNT, num_texts)
    value, _ = in_tensorflow(pool_of(np.ones([COUNT, num_texts, SIZE]), texts, np.zeros(COUNT)),
                             num_texts, objective)
    text_set = mock.Mock(num_texts=num_texts)
    assert capability.loss_of_equals(text_set, objective, np.arange(COUNT)) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("scores, sizes", (
    ([0, 1, 0, 1, 1, 0, 1], ()), ([0.5, 4, 4, 2.25, 5, 0, 3], (6, 3)), ([1, 1, 1, 1, 1, 1, 1], ())))
def test_the_loss_of_scores_is_cosent(scores, sizes):
    vectors, scores = vectors_of(2), np.array(scores, np.float64)
    value, gradient = in_tensorflow(pool_of(vectors, keys_of(2), scores), 2, Objective(
        "score", TEMPERATURE), sizes)
    expected = of_sizes(vectors, sizes or (SIZE,), lambda part: cosent(part, scores, TEMPERATURE))
    np.testing.assert_allclose(value, expected[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-5)
    assert bool(np.abs(expected[1]).max() > 0.1) == (len(set(scores)) > 1)


def test_where_there_is_no_negative_the_loss_is_0_not_infinite():
    """One example, or equal texts: all candidates but an anchor's own are masked."""
    value, gradient = in_tensorflow(
        pool_of(vectors_of(2), np.zeros([COUNT, 2], int), np.zeros(COUNT)), 2,
        Objective("ranking", TEMPERATURE, symmetric=True))
    assert value == 0 and not gradient.any()
    with tf.Graph().as_default(), plain_session() as session:
        vectors, keys = tf.ones([1, 2, SIZE]), tf.zeros([1, 2, 2])
        assert session.run(losses.ranking(vectors, keys, TEMPERATURE)) == 0

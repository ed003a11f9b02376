"""A folded graph computes the same, and what depends on constants alone only once."""

import collections

import numpy as np
import tensorflow.compat.v1 as tf

from conftest import plain_session
from engine import folding

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def folded(x, fetches, weights=()):
    feeds, fetches = folding.folded([x], fetches, dict(weights), tf.ConfigProto(device_count={"GPU": 0}))
    types = collections.Counter(each.type for each in feeds[0].graph.get_operations())

    def run(value):
        with feeds[0].graph.as_default(), plain_session() as session:
            return session.run(fetches, {feeds[0]: value})
    return run, types


def test_parts_and_casts_of_weights_are_constants_and_nothing_hands_on():
    x = tf.placeholder(tf.float32, [None, 3])
    weight = tf.identity(tf.cast(tf.constant(WEIGHT.astype(np.float16)), tf.float32))
    left, right = tf.split(weight, 2, axis=1)
    y, _ = tf.identity_n([tf.matmul(tf.identity(x), left), right])
    run, types = folded(x, {"y": tf.identity(y), "again": [right, x]})
    found = run(np.eye(3))
    np.testing.assert_array_equal(found["y"], WEIGHT[:, :2])
    np.testing.assert_array_equal(found["again"][0], WEIGHT[:, 2:])
    np.testing.assert_array_equal(found["again"][1], np.eye(3))
    assert types == {"Placeholder": 1, "Const": 2, "MatMul": 1}


def test_placeholders_with_values_become_constants():
    x, weight = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [3, 4])
    run, types = folded(x, [tf.matmul(x, weight), tf.matmul(x, 2 * weight)], {weight.name: WEIGHT})
    np.testing.assert_array_equal(run(np.eye(3)), [WEIGHT, 2 * WEIGHT])
    assert types == {"Placeholder": 1, "Const": 2, "MatMul": 2}


def test_loops_checks_and_random_numbers_stay_as_they_are():
    x = tf.placeholder(tf.float32, [])
    limit = tf.constant(2.0) * 4.0
    with tf.control_dependencies([tf.Assert(x < limit, ["x is not below", limit])]):
        start = tf.identity(x)
    total = tf.while_loop(lambda value: value < limit,
                          lambda value: value + tf.constant(1.0) * tf.sqrt(tf.constant(4.0)), [start])
    run, types = folded(x, (total, tf.random.uniform([2]) + tf.sqrt(limit)))
    assert run(1.5)[0] == 9.5 and types["Assert"] == 1
    first, second = run(0.0)[1]
    assert first != second and types["RandomUniform"] == 1
    with np.testing.assert_raises_regex(tf.errors.InvalidArgumentError, "x is not below"):
        run(9.0)

"""Each loss of distillation is its formula, and our own gradient is right, whatever the padding."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distillation import losses

LENGTHS = (5, 1, 3)
HEADS, HIDDEN, CLASSES = 2, 4, 3


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def attention_formula(student, teacher):
    """The loss of examples without padding; each is [heads, length, length]."""
    return np.mean([((s - t)**2).sum() / (len(s) * s.shape[1]**2)
                    for s, t in zip(student, teacher)])


def hidden_formula(student, teacher):
    """The loss of examples without padding; each is [length, hidden]."""
    return np.mean([((s - t)**2).sum() / s.size for s, t in zip(student, teacher)])


def classes_formula(student, teacher, tau):
    return tau**2 * np.mean([-(softmax(t / tau) * np.log(softmax(s / tau))).sum()
                             for s, t in zip(student, teacher)])


def several_classes_formula(student, teacher, tau):
    p = 1 / (1 + np.exp(-teacher / tau))
    return -tau**2 * np.mean(p * log_sigmoid(student / tau) + (1 - p) * log_sigmoid(-student / tau))


def padded(examples, shape, noise):
    """[B, *shape] of examples of several lengths, with `noise` for padding."""
    rows = noise.normal(size=[len(examples), *shape]) * 1000
    for row, example in zip(rows, examples):
        row[tuple(map(slice, example.shape))] = example
    return rows


def value_and_gradients(loss, student, teacher, *arguments):
    """The loss of float64 arrays and its gradients, computed in float32."""
    inputs = [tf.placeholder(tf.float32, array.shape) for array in (student, teacher)]
    value = loss(*inputs, *arguments)
    gradients = tf.gradients(value, inputs)
    assert gradients[1] is None, "the teacher takes no gradient"
    with tf.Session() as session:
        return session.run([value, gradients[0]], dict(zip(inputs, (student, teacher))))


@pytest.mark.parametrize("loss, formula, shape_of", [
    (losses.attention_loss, attention_formula, lambda length: [HEADS, length, length]),
    (losses.hidden_loss, hidden_formula, lambda length: [length, HIDDEN])])
def test_a_loss_over_tokens_is_its_formula_on_the_real_ones(loss, formula, shape_of):
    random, longest = np.random.RandomState(1), max(LENGTHS) + 4  # of padding
    students, teachers = ([random.normal(size=shape_of(length)) for length in LENGTHS]
                          for _ in range(2))
    student, teacher = (padded(examples, shape_of(longest), random)
                        for examples in (students, teachers))
    mask = (np.arange(longest) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)
    value, gradient = value_and_gradients(loss, student, teacher, mask)
    np.testing.assert_allclose(value, formula(students, teachers), rtol=1e-5)

    for index, (own, taught) in enumerate(zip(students, teachers)):
        real = tuple(map(slice, own.shape))
        # All elements of an example have the same weight in its squared error.
        weight = formula([own], [taught]) / ((own - taught)**2).sum() / len(LENGTHS)
        np.testing.assert_allclose(gradient[index][real], 2 * weight * (own - taught), atol=1e-5)
        gradient[index][real] = 0
    assert not gradient.any(), "padding takes no gradient"


@pytest.mark.parametrize("loss, formula, arguments", [
    (losses.soft_cross_entropy, classes_formula, [3.0]),
    (losses.soft_sigmoid_cross_entropy, several_classes_formula, [3.0]),
    (losses.output_error, lambda student, teacher: ((student - teacher)**2).mean(), [])])
def test_a_loss_of_outputs_is_its_formula_at_any_temperature(loss, formula, arguments):
    student, teacher = np.random.RandomState(4).normal(size=[2, 5, CLASSES]) * 2
    value, _ = value_and_gradients(loss, student, teacher, *arguments)
    np.testing.assert_allclose(value, formula(student, teacher, *arguments), rtol=1e-5)


def test_the_loss_of_vectors_is_one_minus_the_mean_of_their_cosines():
    student, teacher = np.random.RandomState(6).normal(size=[2, 5, HIDDEN])
    student, teacher = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
                        for vectors in (student, teacher))
    value, gradient = value_and_gradients(losses.cosine_distance, student, teacher)
    np.testing.assert_allclose(value, 1 - (student * teacher).sum(axis=1).mean(), rtol=1e-5)
    # The part of the gradient that keeps the length is the gradient of the cosine.
    along = gradient - (gradient * student).sum(axis=1, keepdims=True) * student
    of_cosine = -(teacher - (teacher * student).sum(axis=1, keepdims=True) * student) / 5
    np.testing.assert_allclose(along, of_cosine, atol=1e-6)

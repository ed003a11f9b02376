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


def padded(examples, length, noise):
    """[B, ..., length(, length)] of examples of several lengths, with `noise` for padding."""
    def fill(example):
        ragged = [axis for axis, size in enumerate(example.shape) if size in LENGTHS]
        shape = [length if axis in ragged else size for axis, size in enumerate(example.shape)]
        row = noise.normal(size=shape) * 1000
        row[tuple(slice(size) for size in example.shape)] = example
        return row
    return np.stack([fill(example) for example in examples])


def mask_to(length):
    return (np.arange(length) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)


def value_and_gradients(loss, student, teacher, *arguments):
    """The loss of float64 arrays and its gradients, computed in float32."""
    inputs = [tf.placeholder(tf.float32, array.shape) for array in (student, teacher)]
    value = loss(*inputs, *arguments)
    gradients = tf.gradients(value, inputs)
    assert gradients[1] is None, "the teacher takes no gradient"
    with tf.Session() as session:
        return session.run([value, gradients[0]], dict(zip(inputs, (student, teacher))))


def finite_difference(formula, student, step=1e-6):
    gradient = np.zeros_like(student)
    for place in np.ndindex(*student.shape):
        beside = [student.copy(), student.copy()]
        beside[0][place] += step
        beside[1][place] -= step
        gradient[place] = (formula(beside[0]) - formula(beside[1])) / (2 * step)
    return gradient


def random_examples(shape_of, seed):
    rng = np.random.RandomState(seed)
    return [rng.normal(size=shape_of(length)) for length in LENGTHS]


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize("loss, formula, shape_of", [
    (losses.attention_loss, attention_formula, lambda length: [HEADS, length, length]),
    (losses.hidden_loss, hidden_formula, lambda length: [length, HIDDEN])])
def test_a_loss_over_tokens_is_its_formula_on_the_real_ones(loss, formula, shape_of, padding):
    length = max(LENGTHS) + padding
    students, teachers = random_examples(shape_of, 1), random_examples(shape_of, 2)
    noise = np.random.RandomState(3)
    student, teacher = padded(students, length, noise), padded(teachers, length, noise)
    value, gradient = value_and_gradients(loss, student, teacher, mask_to(length))
    np.testing.assert_allclose(value, formula(students, teachers), rtol=1e-5)

    for index, example in enumerate(students):
        def of_example(values):
            return formula(students[:index] + [values] + students[index + 1:], teachers)
        own = tuple(slice(size) for size in example.shape)
        np.testing.assert_allclose(
            gradient[index][own], finite_difference(of_example, example), atol=1e-5)
        gradient[index][own] = 0
    assert not gradient.any(), "padding takes no gradient"


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("loss, formula", [
    (losses.soft_cross_entropy, classes_formula),
    (losses.soft_sigmoid_cross_entropy, several_classes_formula)])
def test_a_loss_of_outputs_is_its_formula_at_any_temperature(loss, formula, temperature):
    student, teacher = np.random.RandomState(4).normal(size=[2, 5, CLASSES]) * 2
    value, _ = value_and_gradients(loss, student, teacher, temperature)
    np.testing.assert_allclose(value, formula(student, teacher, temperature), rtol=1e-5)


def test_the_loss_of_a_regression_is_the_squared_error():
    student, teacher = np.random.RandomState(5).normal(size=[2, 5, 1])
    value, _ = value_and_gradients(losses.output_error, student, teacher)
    np.testing.assert_allclose(value, ((student - teacher)**2).mean(), rtol=1e-5)


def test_the_loss_of_vectors_is_one_minus_the_mean_of_their_cosines():
    student, teacher = np.random.RandomState(6).normal(size=[2, 5, HIDDEN])
    student, teacher = (some / np.linalg.norm(some, axis=1, keepdims=True)
                        for some in (student, teacher))
    value, gradient = value_and_gradients(losses.cosine_distance, student, teacher)
    np.testing.assert_allclose(
        value, 1 - np.mean([one @ other for one, other in zip(student, teacher)]), rtol=1e-5)
    # The part of the gradient that keeps the length is the gradient of the cosine.
    along = gradient - (gradient * student).sum(axis=1, keepdims=True) * student
    of_cosine = -(teacher - (teacher * student).sum(axis=1, keepdims=True) * student) / 5
    np.testing.assert_allclose(along, of_cosine, atol=1e-6)

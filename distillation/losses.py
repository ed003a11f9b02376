"""The losses of a student against the teacher's attention, states and outputs.

They are TinyBERT's (Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding",
https://arxiv.org/abs/1909.10351, section 3.1). Each is a mean over the tokens of an example,
without padding, and then over the examples, so that an example has the same weight however far
its batch is padded. Only the student gets a gradient.

Shapes: B batch, T length, N heads, D hidden size of the teacher, C outputs of the classifier.
"""

import tensorflow.compat.v1 as tf


def attention_loss(student: tf.Tensor, teacher: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Squared error of the attention scores before the softmax (formula 7), a scalar.

        mean over b of  sum over h, and over i and j not padding, of  (S - T)^2 / (N * length_b^2)

    TinyBERT's code divides by B * N * T * T instead, sets the scores of attention to padding to 0,
    and counts the attention from padding: its value depends on the padding of the batch, and long
    examples have more weight than short ones.

    Args:
        student, teacher: [B, N, T, T].
        mask: [B, T], 1 for a real token and 0 for padding.
    """
    share = _share_of_example(mask)
    pairs = share[:, tf.newaxis, :, tf.newaxis] * share[:, tf.newaxis, tf.newaxis, :]
    return _sum_of_errors(student, teacher, _over(pairs, student, axis=1))


def hidden_loss(student: tf.Tensor, teacher: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Squared error of a layer's states, or of the embeddings (formulas 8 and 9), a scalar.

        mean over b of  sum over d, and over i not padding, of  (S - T)^2 / (D * length_b)

    TinyBERT's code divides by B * T * D and counts padding, too.

    Args:
        student: [B, T, D], projected to the teacher's hidden size.
        teacher: [B, T, D].
        mask: [B, T], 1 for a real token and 0 for padding.
    """
    return _sum_of_errors(student, teacher, _over(
        _share_of_example(mask)[:, :, tf.newaxis], student, axis=2))


def soft_cross_entropy(student: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
    """Cross-entropy with the teacher's probabilities (formula 10), a scalar.

        tau^2 * mean over b of  - sum over c of  softmax(T / tau) * log softmax(S / tau)

    tau^2 keeps the size of the gradient the same at any temperature (Hinton et al., "Distilling
    the Knowledge in a Neural Network", section 2). TinyBERT's code omits it, and divides by the
    number of classes as well: at tau = 1, its value is this one divided by C.

    Args:
        student, teacher: logits [B, C].
        temperature: tau.
    """
    labels = tf.nn.softmax(tf.stop_gradient(teacher) / temperature)
    return temperature**2 * tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=student / temperature))


def soft_sigmoid_cross_entropy(student: tf.Tensor, teacher: tf.Tensor,
                               temperature: float) -> tf.Tensor:
    """`soft_cross_entropy` for multi-label classification: a binary cross-entropy per class.

        tau^2 * mean over b and c of
            - p log sigmoid(S / tau) - (1 - p) log sigmoid(-S / tau),  p = sigmoid(T / tau)

    TinyBERT's code has no multi-label tasks.
    """
    labels = tf.sigmoid(tf.stop_gradient(teacher) / temperature)
    return temperature**2 * tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=student / temperature))


def output_error(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Mean squared error of a regression's outputs, [B, 1] each, a scalar.

    TinyBERT's code trains a regression on the labels, without the teacher.
    """
    return tf.reduce_mean(tf.squared_difference(student, tf.stop_gradient(teacher)))


def cosine_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """How far vectors are from the teacher's in direction, a scalar.

        mean over b of  1 - sum over d of  S * T  =  mean over b of  sum over d of  (S - T)^2 / 2

    TinyBERT has no such loss, since its tasks are classification.

    Args:
        student, teacher: [B, D], of length 1.
    """
    # As each length is 1, the squares add up to B, which is on the card; the size of a batch is not.
    return _sum_of_errors(student, teacher, 0.5 / tf.reduce_sum(tf.square(teacher)))


def _share_of_example(mask: tf.Tensor) -> tf.Tensor:
    """[B, T]: for a real token, 1 / (the number of the example's real tokens); 0 for padding."""
    mask = tf.cast(mask, tf.float32)
    return mask / tf.reduce_sum(mask, axis=1, keepdims=True)


def _over(shares: tf.Tensor, values: tf.Tensor, axis: int) -> tf.Tensor:
    """The shares of examples as weights of a mean over the examples and an axis of `values`."""
    # The shares of an example add up to 1. Their sum is on the card; the size of a batch is not.
    return shares / (tf.reduce_sum(shares) * values.shape.as_list()[axis])


def _sum_of_errors(student: tf.Tensor, teacher: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The sum of weights * (student - teacher)^2, a scalar.

    A sum over all axes: for means over some, TensorFlow's gradient computes shapes on the card and copies each to
    the host, which waits for it.
    """
    teacher, weights = tf.stop_gradient(teacher), tf.stop_gradient(weights)
    return tf.reduce_sum(weights * tf.squared_difference(student, teacher))

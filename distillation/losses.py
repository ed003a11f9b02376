"""What a student is trained towards: the teacher's attention, states and outputs.

TinyBERT's losses (Jiao et al., "TinyBERT: Distilling BERT for Natural Language
Understanding", https://arxiv.org/abs/1909.10351, section 3.1) as functions of tensors. Each
is a mean over an example's real tokens, then over the examples: an example counts the same
in every batch, however far that is padded. The gradient goes to the student alone.

Shapes: B batch, T length, N heads, D hidden size of the teacher, C outputs of the classifier.
"""

import tensorflow.compat.v1 as tf


def attention_loss(student: tf.Tensor, teacher: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Squared error of the scores of attention, before the softmax (formula 7), a scalar.

        mean over b of  sum over h, and over i and j real, of  (S - T)^2 / (N * length_b^2)

    The public code divides by B * N * T * T, 0 standing for the scores of padding that is
    attended to, and those of padding that attends counted as they are: its value depends on
    how far the batch is padded, and long examples weigh more than short ones.

    Args:
        student, teacher: [B, N, T, T].
        mask: [B, T], 1 for a real token and 0 for padding.
    """
    mask = tf.cast(mask, tf.float32)
    errors = tf.reduce_mean(_squared_error(student, teacher), axis=1)  # [B, T, T]
    return _mean_where(mask[:, :, tf.newaxis] * mask[:, tf.newaxis, :], errors)


def hidden_loss(student: tf.Tensor, teacher: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Squared error of a layer's states, or of the embeddings (formulas 8 and 9), a scalar.

        mean over b of  sum over d, and over i real, of  (S - T)^2 / (D * length_b)

    The public code divides by B * T * D and counts padding, too.

    Args:
        student: [B, T, D], projected to the teacher's hidden size.
        teacher: [B, T, D].
        mask: [B, T], 1 for a real token and 0 for padding.
    """
    errors = tf.reduce_mean(_squared_error(student, teacher), axis=-1)  # [B, T]
    return _mean_where(tf.cast(mask, tf.float32), errors)


def soft_cross_entropy(student: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
    """Cross-entropy with the teacher's probabilities (formula 10), a scalar.

        tau^2 * mean over b of  - sum over c of  softmax(T / tau) * log softmax(S / tau)

    tau^2 gives the gradient the same size at any temperature (Hinton et al., "Distilling the
    Knowledge in a Neural Network", section 2). The public code leaves it out, and divides by
    the number of classes C beside that of examples: at tau = 1 its value is this over C.

    Args:
        student, teacher: [B, C], the outputs before the softmax.
        temperature: tau.
    """
    labels = tf.nn.softmax(tf.stop_gradient(teacher) / temperature)
    return temperature**2 * tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=student / temperature))


def soft_sigmoid_cross_entropy(student: tf.Tensor, teacher: tf.Tensor,
                               temperature: float) -> tf.Tensor:
    """`soft_cross_entropy` where any number of the classes may hold: a yes and a no for each.

        tau^2 * mean over b and c of
            - p log sigmoid(S / tau) - (1 - p) log sigmoid(-S / tau),  p = sigmoid(T / tau)

    The public code has no such tasks.
    """
    labels = tf.sigmoid(tf.stop_gradient(teacher) / temperature)
    return temperature**2 * tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=student / temperature))


def output_error(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Squared error of a regression's outputs, [B, 1] each; the mean over b, a scalar.

    The public code's regression does not see the teacher: it takes the labels.
    """
    return tf.reduce_mean(_squared_error(student, teacher))


def _squared_error(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    return tf.squared_difference(student, tf.stop_gradient(teacher))


def _mean_where(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Mean over the examples of each one's mean where its `weights`, 0 or 1, are 1."""
    within = list(range(1, values.shape.ndims))
    sums = tf.reduce_sum(values * weights, within)
    return tf.reduce_mean(sums / tf.reduce_sum(weights, within))

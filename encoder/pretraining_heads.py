"""The heads that BERT is pretrained with: masked words, and whether a sentence is the next.

Their variables have the original's names. Computed in float32, whatever the encoder is.
"""

import tensorflow.compat.v1 as tf

import modeling


def masked_lm_logits(states: tf.Tensor, embedding_table: tf.Tensor,
                     config: modeling.BertConfig) -> tf.Tensor:
    """[M, V]: a score of each word of the vocabulary for M positions.

    The word embeddings are the output layer's weights, too: their gradient is one dense
    tensor then, to which TensorFlow adds the rows of the words that were looked up.

    Args:
        states: [M, D], the encoder's last states at these positions alone, as of
            `BertModel.get_sequence_output_at`: the scores of all positions are many.
        embedding_table: [V, D], `BertModel.get_embedding_table()`.
    """
    states = tf.cast(states, tf.float32)
    with tf.variable_scope("cls/predictions"):
        with tf.variable_scope("transform"):
            states = modeling.layer_norm(_transform(states, config))
        bias = tf.get_variable("output_bias", [config.vocab_size],
                               initializer=tf.zeros_initializer())
        logits = tf.matmul(states, tf.cast(embedding_table, tf.float32), transpose_b=True)
        return tf.nn.bias_add(logits, bias)


def _transform(states: tf.Tensor, config: modeling.BertConfig) -> tf.Tensor:
    size = config.hidden_size
    with tf.variable_scope("dense"):
        kernel = tf.get_variable(
            "kernel", [size, size],
            initializer=modeling.create_initializer(config.initializer_range))
        bias = tf.get_variable("bias", [size], initializer=tf.zeros_initializer())
    output = tf.nn.bias_add(tf.matmul(states, kernel), bias)
    activation = modeling.get_activation(config.hidden_act)
    return activation(output) if activation else output


def next_sentence_logits(pooled: tf.Tensor, config: modeling.BertConfig) -> tf.Tensor:
    """[B, 2]: scores of "the second text is the next" and "it is a random one".

    Args:
        pooled: [B, D], the pooled output.
    """
    with tf.variable_scope("cls/seq_relationship"):
        weights = tf.get_variable(
            "output_weights", [2, config.hidden_size],
            initializer=modeling.create_initializer(config.initializer_range))
        bias = tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer())
    logits = tf.matmul(tf.cast(pooled, tf.float32), weights, transpose_b=True)
    return tf.nn.bias_add(logits, bias)

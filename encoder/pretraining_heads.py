"""The heads that BERT is pretrained with: masked words and next sentences.

Their variables have the original's names. They compute in float32, whatever the encoder does, but
for the product with the word embeddings.
"""

import tensorflow.compat.v1 as tf

import modeling
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError


def masked_lm_logits(states: tf.Tensor, embedding_table: tf.Tensor,
                     config: modeling.BertConfig,
                     computation: modeling.Computation = modeling.DEFAULT_COMPUTATION
                     ) -> tf.Tensor:
    """A score for each word of the vocabulary at M positions, [M, V] float32.

    The word embeddings are also the output layer's weights. So their gradient is one dense tensor,
    to which TensorFlow adds the rows of the words that were looked up.

    Args:
        states: [M, D], the encoder's last states at these positions, from
            `BertModel.get_sequence_output_at`. (Scores for all positions would take much memory.)
        embedding_table: [V, D], `BertModel.get_embedding_table()`.
        computation: that of the encoder; its type is that of the product with the table.
    """
    states, size = tf.cast(states, tf.float32), config.hidden_size
    activation = modeling.get_activation(config.hidden_act) or tf.identity
    with tf.variable_scope("cls/predictions"):
        with tf.variable_scope("transform"):
            with tf.variable_scope("dense"):
                kernel = tf.get_variable(
                    "kernel", [size, size],
                    initializer=modeling.create_initializer(config.initializer_range))
                bias = tf.get_variable("bias", [size], initializer=tf.zeros_initializer())
            states = activation(tf.nn.bias_add(tf.matmul(states, kernel), bias))
            states = modeling.layer_norm(states)
        bias = tf.get_variable("output_bias", [config.vocab_size],
                               initializer=tf.zeros_initializer())
        table = computation.cast(tf.convert_to_tensor(embedding_table), computation.dtype)
        logits = tf.matmul(tf.cast(states, table.dtype), table, transpose_b=True)
        return tf.nn.bias_add(tf.cast(logits, tf.float32), bias)


def require_masked_lm_head(checkpoint: Checkpoint) -> Checkpoint:
    """Returns `checkpoint`; raises a UserError if it has no masked-LM head."""
    if "cls/predictions/output_bias" not in checkpoint.shapes:
        raise UserError(f"{checkpoint.path} has no masked-LM head (cls/predictions/...): give a "
                        "pretrained model as it was released, or one of python -m "
                        "pretraining.run --do_train, not an encoder or a classifier")
    return checkpoint


def next_sentence_logits(pooled: tf.Tensor, config: modeling.BertConfig) -> tf.Tensor:
    """Scores for "the second text follows the first" and "it is a random one", [B, 2].

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

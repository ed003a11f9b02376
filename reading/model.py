"""The model: for each token of a window, how likely the answer begins there, and ends there."""

from typing import Dict

import tensorflow.compat.v1 as tf

import modeling
from encoder import bert
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.model import Forward, Mode, Outputs

# The head's variables, with Google's names.
WEIGHTS, BIAS = HEAD = ("cls/squad/output_weights", "cls/squad/output_bias")
NUM_OUTPUTS = 2
_LEAST = -1e9  # the logit of padding


def forward_of(config: modeling.BertConfig) -> Forward:
    """A model whose predictions are "start_logits" and "end_logits", [b, t].

    Its features are input_ids, input_mask, segment_ids, int32 [b, t], and, for a loss,
    start_positions and end_positions, int32 [b]. The loss is the mean of the two cross-entropies
    over the tokens of a window; padding is not among them, so that no result depends on how far
    a batch is padded.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        logits = logits_of(config, features, mode)
        loss = None
        if "start_positions" in features:
            # Labels of int32 would be kept in host memory.
            loss = sum(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.cast(features[f"{name}_positions"], tf.int64),
                logits=logits[f"{name}_logits"])) for name in ("start", "end")) / 2.0
        return Outputs(loss=loss, predictions=logits)
    return forward


def require_head(checkpoint: checkpoints.Checkpoint, flag: str) -> None:
    """Raises a UserError if a checkpoint has no head for answers."""
    if any(name not in checkpoint.shapes for name in HEAD):
        raise UserError(f"{flag}={checkpoint.path} does not answer questions: it has no {WEIGHTS}; "
                        "train it first (--do_train)")


def logits_of(config: modeling.BertConfig, features: Dict[str, tf.Tensor],
              mode: Mode) -> Dict[str, tf.Tensor]:
    """"start_logits" and "end_logits" of each token, float32 [b, t]; those of padding are least."""
    states = bert.build(config, features, mode).get_sequence_output()
    batch_size, length, hidden_size = modeling.get_shape_list(states, expected_rank=3)
    weights = tf.get_variable(WEIGHTS, [NUM_OUTPUTS, hidden_size],
                              initializer=tf.truncated_normal_initializer(stddev=0.02))
    bias = tf.get_variable(BIAS, [NUM_OUTPUTS], initializer=tf.zeros_initializer())
    logits = tf.matmul(weights, modeling.reshape_to_matrix(states), transpose_b=True)  # [2, b * t]
    logits = tf.reshape(logits + bias[:, tf.newaxis], [NUM_OUTPUTS, batch_size, length])
    logits += _LEAST * (1.0 - tf.cast(features["input_mask"], tf.float32))
    return {"start_logits": logits[0], "end_logits": logits[1]}

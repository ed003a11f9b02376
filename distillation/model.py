"""The student's models and their losses against the teacher, for the engine."""

from typing import Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
from distillation import losses
from distillation.student import learned_layers
from distillation.teacher import SCOPE, Teacher
from encoder import bert, label_types
from engine.checkpoints import checkpoints
from engine.model import INFERENCE, Forward, Mode, Outputs

PROJECTION = "projection"  # scope of the variables that only the intermediate stage has

_OUTPUT_LOSSES = {
    label_types.SingleLabel: losses.soft_cross_entropy,
    label_types.MultiLabel: losses.soft_sigmoid_cross_entropy,
    label_types.Regression:
        lambda student, teacher, temperature: losses.output_error(student, teacher),
    type(None): lambda student, teacher, temperature: losses.cosine_distance(student, teacher),
}


def intermediate(config: modeling.BertConfig, teacher: Teacher, *, attention: bool) -> Forward:
    """Teacher and student in one graph, with the loss of embeddings, states and attention scores.

    The loss is the sum over the embeddings and the student's layers. The teacher's variables are
    below SCOPE; it runs without dropout and is not trained.

    Args:
        attention: whether to learn the attention scores; both models need the same number of heads.
    """
    layers = learned_layers(config, teacher.config)

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        mask = features["input_mask"]
        with checkpoints.frozen(teacher.checkpoint, SCOPE):
            teacher_model = bert.build(
                teacher.config, features, INFERENCE._replace(computation=mode.computation),
                gives_attention_scores=attention)
        student_model = bert.build(config, features, mode, gives_attention_scores=attention)
        project = _projection(config.hidden_size, teacher.config.hidden_size)
        teacher_states = _states(teacher_model)
        parts = [losses.hidden_loss(project(states), teacher_states[layer], mask)
                 for states, layer in zip(_states(student_model), (0, *layers))]
        if attention:
            teacher_scores = teacher_model.get_attention_scores()
            parts += [losses.attention_loss(scores, teacher_scores[layer - 1], mask)
                      for scores, layer in zip(student_model.get_attention_scores(), layers)]
        return Outputs(loss=tf.add_n(parts), predictions={})
    return forward


def _states(model: modeling.BertModel) -> Sequence[tf.Tensor]:
    """The embeddings and the states after each layer, [b, t, hidden size] each."""
    return [model.get_embedding_output(), *model.get_all_encoder_layers()]


def _projection(inputs: int, outputs: int):
    """A learned linear map from the student's states to the teacher's size, for all layers.

    The paper has one for the embeddings and another for the states; TinyBERT's code, with which
    the published students were trained, uses one for both.
    """
    with tf.variable_scope(PROJECTION):
        # Initially the identity, cut or padded with zeros to the teacher's size.
        kernel = tf.get_variable("kernel", [inputs, outputs],
                                 initializer=tf.initializers.identity())
        bias = tf.get_variable("bias", [outputs], initializer=tf.zeros_initializer())

    def project(states: tf.Tensor) -> tf.Tensor:
        rows = tf.nn.bias_add(tf.matmul(modeling.reshape_to_matrix(states), kernel), bias)
        return tf.reshape(rows, [*modeling.get_shape_list(states)[:2], outputs])
    return project


def prediction(student: Forward, kind: Optional[label_types.Kind] = None, *,
               temperature: float = 1.0, label_weight: float = 0.0,
               loss_unit: float = 1.0) -> Forward:
    """The student with a loss against the teacher's outputs.

    The features are the student's and "teacher_logits", [b, outputs], or "teacher_vectors", [b, D].

    Args:
        student: its model, with its loss against the labels.
        kind: of the labels; None of a student that gives vectors.
        label_weight: weight of the loss against the labels; the other loss has 1 - label_weight.
        loss_unit: of the losses of logits; a regression's labels are standardized.
    """
    name = "logits" if kind else "vectors"

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        outputs = student(features, mode)
        loss = _OUTPUT_LOSSES[type(kind)](
            outputs.predictions[name], features[f"teacher_{name}"], temperature) / loss_unit
        if label_weight:
            loss = (1.0 - label_weight) * loss + label_weight * outputs.loss
        return outputs._replace(loss=loss)
    return forward

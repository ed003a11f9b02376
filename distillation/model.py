"""A student's model with the loss that holds it against its teacher, for the engine."""

from typing import Dict, Sequence

import tensorflow.compat.v1 as tf

import modeling
from distillation import losses, teacher as teachers
from engine.model import Forward, Mode, Outputs
from tasks import label_types

# Variables of this scope are the student's while it learns states, and no longer.
PROJECTION = "projection"

_OUTPUT_LOSSES = {
    label_types.OneClass.name: losses.soft_cross_entropy,
    label_types.SeveralClasses.name: losses.soft_sigmoid_cross_entropy,
    label_types.Number.name: lambda student, teacher, temperature: losses.output_error(student, teacher),
}


def intermediate(config: modeling.BertConfig, teacher: teachers.Teacher, layers: Sequence[int], *,
                 attention: bool) -> Forward:
    """Teacher and student in one graph; the loss is of embeddings, states and attention scores.

    It is the sum of the losses of the embeddings and of each of the student's layers.

    Args:
        layers: of the teacher, from 1, for each of the student's.
        attention: whether the scores are learned, too; for that, both have as many heads.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        mask = features["input_mask"]
        taught = teachers.encoder(teacher, features, mode.computation,
                                  gives_attention_scores=attention)
        model = modeling.BertModel(
            config, mode.is_training, features["input_ids"], mask, features["segment_ids"],
            dropout_seed=mode.dropout_seed, gives_attention_scores=attention,
            computation=mode.computation)
        project = _projection(config.hidden_size, teacher.config.hidden_size)
        parts = [losses.hidden_loss(project(own), taught_states, mask) for own, taught_states
                 in zip(_states(model), _chosen(_states(taught), (0, *layers)))]
        if attention:
            scores = _chosen(taught.get_attention_scores(), [layer - 1 for layer in layers])
            parts += [losses.attention_loss(own, taught_scores, mask) for own, taught_scores
                      in zip(model.get_attention_scores(), scores)]
        return Outputs(loss=tf.add_n(parts), predictions={})
    return forward


def _states(model: modeling.BertModel) -> Sequence[tf.Tensor]:
    """Embeddings and the states after each layer, [b, t, hidden size] each."""
    return [model.get_embedding_output(), *model.get_all_encoder_layers()]


def _chosen(values: Sequence[tf.Tensor], indices: Sequence[int]) -> Sequence[tf.Tensor]:
    return [values[index] for index in indices]


def _projection(inputs: int, outputs: int):
    """A function from the student's states to the teacher's size, learned; the same for all.

    The paper has one for the embeddings and one for the states; one for both is what the
    public code trains and the published students were trained with.
    """
    with tf.variable_scope(PROJECTION):
        # It starts by leaving the values as they are, as far as the sizes go.
        kernel = tf.get_variable("kernel", [inputs, outputs],
                                 initializer=tf.initializers.identity())
        bias = tf.get_variable("bias", [outputs], initializer=tf.zeros_initializer())

    def project(states: tf.Tensor) -> tf.Tensor:
        rows = tf.nn.bias_add(tf.matmul(modeling.reshape_to_matrix(states), kernel), bias)
        return tf.reshape(rows, [*modeling.get_shape_list(states)[:2], outputs])
    return project


def prediction(classify: Forward, kind: label_types.Kind, *, temperature: float,
               label_weight: float) -> Forward:
    """The student's classifier, trained towards the teacher's outputs.

    Its features are the classifier's and "teacher_logits", [b, outputs].

    Args:
        classify: the classifier with its own loss, that of the labels.
        label_weight: the share of that loss; the rest is the loss against the teacher.
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        outputs = classify(features, mode)
        loss = _OUTPUT_LOSSES[kind.name](
            outputs.predictions["logits"], features["teacher_logits"], temperature)
        if label_weight:
            loss = (1.0 - label_weight) * loss + label_weight * outputs.loss
        return Outputs(loss=loss, predictions=outputs.predictions)
    return forward

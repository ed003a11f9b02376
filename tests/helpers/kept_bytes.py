"""What a model keeps of its forward pass for the backward pass."""

from typing import Any, Dict

import numpy as np

from engine.devices import runtime

import modeling
import tensorflow.compat.v1 as tf
from benchmarks.step_graph import needed


def kept_bytes(config: modeling.BertConfig, features: Dict[str, np.ndarray], **options: Any) -> int:
    """Bytes of its forward pass that a model's gradients read, but variables and layers' states.

    Args:
        features: input_ids, input_mask and token_type_ids, integers [b, t].
        options: other arguments of BertModel.
    """
    with tf.Graph().as_default() as graph, tf.Session(config=runtime.session_config()) as session:
        model = modeling.BertModel(config, True, dropout_seed=tf.constant([1, 2]), **options, **{
            name: tf.constant(value, tf.int32) for name, value in features.items()})
        states = model.get_all_encoder_layers()
        forward = set(graph.get_operations())
        variables = tf.trainable_variables()
        gradients = [tf.convert_to_tensor(x) for x in tf.gradients(
            tf.reduce_sum(tf.sin(states[-1])), variables) if x is not None]
        read = {x.name: x for op in needed([x.op for x in gradients], with_control=False) - forward for x in op.inputs
                if x.op in forward and x.dtype != tf.resource}
        # With a beta of 0, layers' states would be equal to their standardized values.
        session.run([variable.assign(tf.random.normal(variable.shape, stddev=0.1))
                     for variable in variables])
        others, read = session.run([[variables, model.get_embedding_output(), *states], read])
    # Tensors with the same bytes share their memory: reshaped, or passed through.
    others = {array.tobytes() for array in tf.nest.flatten(others)}
    return sum(map(len, {array.tobytes() for array in read.values()} - others))

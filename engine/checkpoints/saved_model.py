"""A model as a SavedModel, TensorFlow's own format.

It loads in TensorFlow 1.15 and in 2.15, whichever of them wrote it: it holds no functions, no attributes that
only 2.15 knows, and no values that 1.15 would have to infer.
"""

import os
from typing import Callable, Dict, NamedTuple

import tensorflow.compat.v1 as tf

from engine.checkpoints import checkpoints

ASSETS = "assets.extra"  # folder for files of a SavedModel that its graph does not read
VARIABLES = os.path.dirname(checkpoints.EXPORTED)  # folder of the checkpoint

# 2.15 adds a second name to a variable's handle; the name of a custom gradient is known only to
# the process that defined it; shapes are inferred again when the graph is loaded.
_NOT_PORTABLE = ("debug_name", "_gradient_op_type", "_output_shapes")


class Signature(NamedTuple):
    """The inputs and outputs of a model by name, which is also the tensor's name in the graph."""
    inputs: Dict[str, tf.Tensor]
    outputs: Dict[str, tf.Tensor]


Build = Callable[[], Signature]  # makes the model in the default graph, with get_variable


def write(folder: str, build: Build, checkpoint: checkpoints.Checkpoint) -> None:
    """Writes the model with the checkpoint's values into an empty folder."""
    no_gpu = tf.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=no_gpu) as session:
        with tf.variable_scope("", use_resource=True, custom_getter=_at_zero):
            signature = build()
        checkpoints.check_matches(checkpoint, tf.global_variables())
        saver = tf.train.Saver()
        saver.restore(session, checkpoint.path)
        builder = tf.saved_model.builder.SavedModelBuilder(folder)
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.tag_constants.SERVING],
            {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
             tf.saved_model.predict_signature_def(signature.inputs, signature.outputs)},
            saver=saver, strip_default_attrs=True)
        for meta_graph in builder._saved_model.meta_graphs:
            _strip(meta_graph.graph_def)
        builder.save()


def _at_zero(getter, name: str, *args, **kwargs) -> tf.Variable:
    """A variable initialized to zero: its values come from the checkpoint."""
    return getter(name, *args, **{**kwargs, "initializer": tf.zeros_initializer()})


def _strip(graph_def: tf.GraphDef) -> None:
    for node in graph_def.node:
        for name in _NOT_PORTABLE:
            if name in node.attr:
                del node.attr[name]

"""A model in TensorFlow's own formats: a SavedModel, or one graph with the weights in it.

Both formats load in TensorFlow 1.15 and in 2.15, whichever of them wrote the file: they hold no
functions, no attributes that only 2.15 knows, and no values that 1.15 would have to infer.
"""

import os
from typing import Callable, Dict, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.framework import tensor_pb2

from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import files
from engine.errors import UserError

ASSETS = "assets.extra"  # folder for files of a SavedModel that its graph does not read
VARIABLES = os.path.dirname(checkpoints.EXPORTED)  # folder of the checkpoint
FLOAT_TYPES = ("float32", "float16")

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
        with checkpoint_files.writing(folder):
            builder = tf.saved_model.builder.SavedModelBuilder(folder)
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.tag_constants.SERVING],
                {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
                 tf.saved_model.predict_signature_def(signature.inputs, signature.outputs)},
                saver=saver, strip_default_attrs=True)
            for meta_graph in builder._saved_model.meta_graphs:
                _strip(meta_graph.graph_def)
            builder.save()


def write_frozen_graph(path: str, build: Build, checkpoint: checkpoints.Checkpoint,
                       float_type: str) -> None:
    """Writes the model as one GraphDef whose weights are constants.

    Args:
        float_type: the constants' type, one of FLOAT_TYPES; the model computes in float32
            either way.
    """
    with tf.Graph().as_default() as graph:
        with tf.variable_scope("", custom_getter=constants(checkpoint, float_type)):
            signature = build()
        graph_def = tf.train.export_meta_graph(graph=graph, strip_default_attrs=True).graph_def
    graph_def = tf.graph_util.extract_sub_graph(graph_def, list(signature.outputs))
    _strip(graph_def)
    _cast_rows_only(graph_def)
    with files.atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(graph_def.SerializeToString())


def _at_zero(getter, name: str, *args, **kwargs) -> tf.Variable:
    """A variable initialized to zero: its values come from the checkpoint."""
    return getter(name, *args, **{**kwargs, "initializer": tf.zeros_initializer()})


def constants(checkpoint: checkpoints.Checkpoint, float_type: str = "float32"):
    """A variable getter that returns constants with a checkpoint's values.

    It raises a UserError for a variable that the checkpoint lacks, or a value that the type cannot
    hold.

    Args:
        float_type: the constants' type, one of FLOAT_TYPES; they are cast to float32.
    """
    def constant(getter, name: str, *args, **kwargs) -> tf.Tensor:
        checkpoints.check_shape(checkpoint, name, kwargs["shape"])
        with np.errstate(over="ignore"):  # reported below
            value = tf.train.load_variable(checkpoint.path, name).astype(float_type)
        if not np.isfinite(value).all():
            raise UserError(f"{checkpoint.path}: {name} has values that {float_type} cannot hold; "
                            "freeze the graph with float32")
        return tf.cast(tf.constant(as_proto(value), name=name.rsplit("/", 1)[-1]), tf.float32)
    return constant


def as_proto(value: np.ndarray) -> tensor_pb2.TensorProto:
    """The value as raw bytes: TensorFlow 1.15 itself would take up to 3 bytes for a float16."""
    return tensor_pb2.TensorProto(
        dtype=tf.as_dtype(value.dtype).as_datatype_enum,
        tensor_shape=tf.TensorShape(value.shape).as_proto(), tensor_content=value.tobytes())


def _cast_rows_only(graph_def: tf.GraphDef) -> None:
    """Moves casts of a table behind its lookups: casts only the rows in use.

    TensorFlow casts small constants once, but the table of word embeddings in every call, which
    took longer than scoring a text with a model of 6 layers.
    """
    nodes = {node.name: node for node in graph_def.node}
    for name, node in nodes.items():
        if node.op != "GatherV2" or nodes[node.input[0]].op != "Cast":
            continue
        cast, rows = nodes[node.input[0]], graph_def.node.add()
        rows.CopyFrom(node)
        rows.name, rows.input[0] = f"{name}/rows", cast.input[0]
        rows.attr["Tparams"].CopyFrom(cast.attr["SrcT"])
        node.CopyFrom(cast)
        node.name, node.input[0] = name, rows.name


def _strip(graph_def: tf.GraphDef) -> None:
    for node in graph_def.node:
        for name in _NOT_PORTABLE:
            if name in node.attr:
                del node.attr[name]

"""A tiny model whose weights NumPy draws: they are the same whatever builds the graph, and where."""

import numpy as np

from conftest import TinyModel, write_config
from engine.checkpoints import checkpoints
from modeling import BertModel

import tensorflow.compat.v1 as tf


def write_model(directory) -> TinyModel:
    """2 layers, hidden 16, with dropout."""
    directory.mkdir()
    model = write_config(directory, dropout=0.1, num_hidden_layers=2)
    with tf.Graph().as_default():
        BertModel(model.config(), False, tf.zeros([1, 4], tf.int32))
        shapes = {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}
    generator = np.random.RandomState(1)
    checkpoints.write_checkpoint(model.init_checkpoint, {
        name: generator.normal(float(name.endswith("gamma")), 0.2, shapes[name]).astype(np.float32)
        for name in sorted(shapes)})
    return model

"""A tiny model whose weights NumPy draws: they are the same whatever builds the graph, and where."""

import json

import numpy as np

from conftest import TinyModel, WORDS
from engine.checkpoints import checkpoints
from modeling import BertConfig, BertModel

import tensorflow.compat.v1 as tf


def write_model(directory) -> TinyModel:
    """2 layers, hidden 16, with dropout."""
    directory.mkdir()
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (directory / "vocab.txt").write_text("".join(f"{word}\n" for word in vocab))
    config = dict(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=2,
                  num_attention_heads=2, intermediate_size=32, hidden_act="gelu",
                  hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
                  max_position_embeddings=40, type_vocab_size=2, initializer_range=0.2)
    (directory / "bert_config.json").write_text(json.dumps(config))
    with tf.Graph().as_default():
        BertModel(BertConfig.from_dict(config), False, tf.zeros([1, 4], tf.int32))
        shapes = {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}
    generator = np.random.RandomState(1)
    checkpoint = str(directory / "bert_model.ckpt")
    checkpoints.write_checkpoint(checkpoint, {
        name: generator.normal(float(name.endswith("gamma")), 0.2, shapes[name]).astype(np.float32)
        for name in sorted(shapes)})
    return TinyModel(str(directory / "vocab.txt"), str(directory / "bert_config.json"), checkpoint)

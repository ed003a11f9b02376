"""What tests of the augmentation share: a tiny masked-LM, and one score at a time from it."""

import os
import shutil

import numpy as np

import modeling
from conftest import TinyModel
from encoder import pretraining_heads

import tensorflow.compat.v1 as tf


def write_tiny_masked_lm(model: TinyModel, directory, vocab=None, **changes) -> TinyModel:
    """A checkpoint with a masked-LM head, its random weights large enough to have preferences."""
    os.makedirs(str(directory))
    files = TinyModel(*(os.path.join(str(directory), name)
                        for name in ("vocab.txt", "bert_config.json", "bert_model.ckpt")))
    if vocab:
        with open(files.vocab_file, "w", encoding="utf-8") as file:
            file.write("".join(f"{token}\n" for token in vocab))
        changes["vocab_size"] = len(vocab)
    else:
        shutil.copy(model.vocab_file, files.vocab_file)
    config = model.config(initializer_range=0.5, **changes)
    with open(files.bert_config_file, "w") as file:
        file.write(config.to_json_string())
    with OneAtATime(config) as reference:
        reference.initialize(files.init_checkpoint)
    return files


class OneAtATime:
    """The reference: one input per run of a plain session, the scores of all places and ids."""

    def __init__(self, config: modeling.BertConfig):
        self._config = config

    def __enter__(self) -> "OneAtATime":
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(3)
            self._ids = tf.placeholder(tf.int32, [1, None])
            model = modeling.BertModel(self._config, False, self._ids)
            self._scores = pretraining_heads.masked_lm_logits(
                tf.reshape(model.get_sequence_output(), [-1, self._config.hidden_size]),
                model.get_embedding_table(), self._config)
            self._variables = {variable.op.name: variable for variable in tf.global_variables()}
            self._initialize = tf.global_variables_initializer()
            self._saver = tf.train.Saver()
            self._session = tf.Session(graph=graph)
        return self

    def __exit__(self, *exception) -> None:
        self._session.close()

    def initialize(self, prefix: str) -> None:
        """Draws the weights and saves them."""
        self._session.run(self._initialize)
        # The head's bias starts at zero; a trained one does not stay there.
        bias = self._variables["cls/predictions/output_bias"]
        bias.load(np.random.RandomState(0).normal(size=bias.shape.as_list()), self._session)
        self._saver.save(self._session, prefix, write_meta_graph=False, write_state=False)

    def restore(self, prefix: str) -> "OneAtATime":
        self._saver.restore(self._session, prefix)
        return self

    def scores(self, ids, position: int) -> np.ndarray:
        """The scores of all ids of the vocabulary at one position."""
        return self._session.run(self._scores, {self._ids: [ids]})[position]

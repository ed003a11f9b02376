"""What tests of the augmentation share: a tiny masked-LM, and one score at a time from it."""

import os
import shutil

import numpy as np

import modeling
from conftest import TinyModel
from engine import pretraining_heads

import tensorflow.compat.v1 as tf


def write_tiny_masked_lm(model: TinyModel, directory, **changes) -> TinyModel:
    """A checkpoint with a masked-LM head, random weights large enough to have preferences."""
    os.makedirs(str(directory))
    shutil.copy(model.vocab_file, str(directory))
    config = model.config(initializer_range=0.5, **changes)
    with open(os.path.join(str(directory), "bert_config.json"), "w") as file:
        file.write(config.to_json_string())
    prefix = os.path.join(str(directory), "bert_model.ckpt")
    with OneAtATime(config) as session:
        tf.set_random_seed(3)
        session.initialize(prefix)
    return TinyModel(os.path.join(str(directory), "vocab.txt"),
                     os.path.join(str(directory), "bert_config.json"), prefix)


class OneAtATime:
    """The reference: one masked input per run of a plain session, all scores on the host."""

    def __init__(self, config: modeling.BertConfig):
        self._config = config

    def __enter__(self) -> "OneAtATime":
        self._graph = tf.Graph()
        self._context = self._graph.as_default()
        self._context.__enter__()
        tf.set_random_seed(3)
        self._ids, self._segments = (tf.placeholder(tf.int32, [1, None]) for _ in range(2))
        model = modeling.BertModel(self._config, False, self._ids, token_type_ids=self._segments)
        self._scores = pretraining_heads.masked_lm_logits(
            tf.reshape(model.get_sequence_output(), [-1, self._config.hidden_size]),
            model.get_embedding_table(), self._config)
        self._session = tf.Session(graph=self._graph)
        return self

    def __exit__(self, *exception) -> None:
        self._session.close()
        self._context.__exit__(*exception)

    def initialize(self, prefix: str) -> None:
        """Draws the weights and saves them."""
        self._session.run(tf.global_variables_initializer())
        # The head's bias starts at zero; a trained one does not.
        bias = next(variable for variable in tf.global_variables()
                    if variable.op.name == "cls/predictions/output_bias")
        bias.load(np.random.RandomState(0).normal(size=bias.shape.as_list()), self._session)
        tf.train.Saver().save(self._session, prefix, write_meta_graph=False, write_state=False)

    def restore(self, prefix: str) -> "OneAtATime":
        tf.train.Saver().restore(self._session, prefix)
        return self

    def scores(self, first, second, position: int) -> np.ndarray:
        """Of every id of the vocabulary at one position of [CLS] first [SEP] second [SEP]."""
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        ids = [2, *first, 3, *second, 3]  # as the tiny vocabulary has [CLS] and [SEP]
        return self._session.run(
            self._scores, {self._ids: [ids], self._segments: [segments]})[position]

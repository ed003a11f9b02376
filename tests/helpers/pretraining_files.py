"""TFRecord files of made-up pretraining examples, as the original's."""

import numpy as np
import pytest

import modeling
from commands import run_here
from conftest import plain_session
from encoder import pretraining_heads
from pretraining import create_data

import tensorflow.compat.v1 as tf

LENGTH, PREDICTIONS, VOCAB = 24, 6, 31
_SPECIAL = 5  # ids of [PAD] to [MASK] in the tiny model's vocabulary


def features_of(count: int, seed: int = 0, *, length: int = LENGTH, predictions: int = PREDICTIONS):
    """Pairs of texts of 4 to `length` tokens, with one masked token or up to `predictions`."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        size = random.randint(6, length + 1)
        first = random.randint(3, size - 2)
        ids = random.randint(_SPECIAL, VOCAB, size)
        ids[0], ids[first - 1], ids[-1] = 2, 3, 3
        words = [place for place in range(1, size - 1) if place != first - 1]
        # A fixed share would give the parts of a batch much the same weight.
        masked = np.sort(random.permutation(words)[:random.choice([1, 2, predictions])])
        yield {"input_ids": ids, "input_mask": np.ones(size, int),
               "segment_ids": (np.arange(size) >= first).astype(int),
               "masked_lm_positions": masked, "masked_lm_ids": ids[masked],
               "masked_lm_weights": np.ones(len(masked)), "next_sentence_labels": [ids[1] % 2]}


def serialized(features, *, length: int = LENGTH, predictions: int = PREDICTIONS) -> bytes:
    sizes = {"masked_lm_positions": predictions, "masked_lm_ids": predictions,
             "masked_lm_weights": predictions, "next_sentence_labels": 1}
    message = tf.train.Example()
    for name, values in features.items():
        row = np.zeros(sizes.get(name, length))
        row[:len(values)] = values
        if name == "masked_lm_weights":
            message.features.feature[name].float_list.value.extend(row)
        else:
            message.features.feature[name].int64_list.value.extend(row.astype(int))
    return message.SerializeToString()


def write_frozen(path, count: int, seed: int = 0, *, drop=(), **sizes) -> str:
    """Examples with [MASK] in the masked places; without the features that `drop` names."""
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for features in features_of(count, seed, **sizes):
            features["input_ids"] = features["input_ids"].copy()
            features["input_ids"][features["masked_lm_positions"]] = 4
            writer.write(serialized({name: values for name, values in features.items()
                                     if name not in drop}, **sizes))
    return str(path)


def create_data_here(folder, vocab_file, text=None, **flags) -> str:
    """Runs create_data on a text in this process; returns its --output_file."""
    flags = {"input_file": folder / "text.txt", "output_file": folder / "out.tfrecord",
             "vocab_file": vocab_file, "num_processes": 1, **flags}
    if text is not None:
        (folder / "text.txt").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    run_here(flags, create_data)
    return str(flags["output_file"])


@pytest.fixture(name="pretrained", scope="module")
def pretrained_fixture(tiny_model, tmp_path_factory):
    """A checkpoint with all of Google's variables."""
    prefix = str(tmp_path_factory.mktemp("pretrained") / "model.ckpt")
    config = tiny_model.config()
    with tf.Graph().as_default(), plain_session() as session:
        model = modeling.BertModel(config, False, tf.zeros([1, 4], tf.int32))
        pretraining_heads.masked_lm_logits(
            model.get_sequence_output()[0], model.get_embedding_table(), config)
        pretraining_heads.next_sentence_logits(model.get_pooled_output(), config)
        tf.set_random_seed(3)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, prefix, write_meta_graph=False)
    return prefix

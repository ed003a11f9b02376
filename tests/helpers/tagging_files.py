"""Sentences with tags, and taggers with random values."""

import json
import random
import shutil

import numpy as np

from conftest import WORDS
from engine.checkpoints import checkpoints
from engine.model import INFERENCE
from tagging import data, model, schemes
from tagging.model import Tagger
from tagging.schemes import Entity

import tensorflow.compat.v1 as tf

ANIMALS, PLACES, SIZES = ("cat", "dog", "bird"), ("house", "river"), ("old", "small")


def made_up(count, seed, longest=20):
    """Sentences, and their entities: animals with the size before them, and places."""
    generator = random.Random(seed)
    vocabulary = [word for word in WORDS if not word.startswith("##")]
    for _ in range(count):
        words = [generator.choice(vocabulary) for _ in range(generator.randint(1, longest))]
        yield words, [
            Entity("ANIMAL" if word in ANIMALS else "PLACE",
                   place - (word in ANIMALS and place > 0 and words[place - 1] in SIZES), place)
            for place, word in enumerate(words) if word in ANIMALS + PLACES]


def columns(sentences, scheme):
    """The content of a file: word, something else, tag."""
    return "\n".join(
        "".join(f"{word} _ {tag}\n" for word, tag in zip(
            words, schemes.spell(found, len(words), scheme))) for words, found in sentences)


def write_random_tagger(folder, tiny_model, crf):
    """Writes a random tagger with one type, A, into a folder; returns its description."""
    tags = data.TagSet(("A",), "iob2")
    sentences = data.encode_words([["cat"], ["dog"]], tags, tiny_model.encoding(16))
    features = sentences.source().fetch(np.arange(2), 16)
    with tf.Graph().as_default():
        model.forward_of(tiny_model.config(), Tagger(tags, crf))(
            {name: tf.constant(value) for name, value in features.items()}, INFERENCE)
        shapes = {each.op.name: each.shape.as_list() for each in tf.global_variables()}
    generator = np.random.RandomState(2)
    checkpoints.write_checkpoint(str(folder / "model.ckpt"), {
        name: generator.normal(float(name.endswith("gamma")), 0.3, shape).astype(np.float32)
        for name, shape in sorted(shapes.items())})
    for name in ("bert_config_file", "vocab_file"):
        shutil.copy(getattr(tiny_model, name), folder)
    description = {"kind": "tags", "types": ["A"], "scheme": "iob2", "crf": crf,
                   "do_lower_case": True, "max_seq_length": 16}
    (folder / "task.json").write_text(json.dumps(description))
    return description

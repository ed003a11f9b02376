"""The model that a student learns from: its states and, of a classifier, its outputs.

It has no dropout, takes no gradient and keeps its values, bit for bit.
"""

import os
from typing import Dict, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import classifier, vocabulary
from encoder.config import load_config
from encoder.encoding import Encoding, load_encoding
from engine import checkpoints, files, saved_model
from engine.data import store
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.inference import Predictor
from engine.progress import Counter
from tasks import label_types, model_folder
from tasks.data import TextSet

SCOPE = "teacher"  # of its variables in the student's graph

_CHUNK_EXAMPLES = 1 << 17  # whose outputs are in memory at a time


class Teacher(NamedTuple):
    """A trained classifier, or an encoder. Made by `load` and `load_encoder`."""
    config: modeling.BertConfig
    checkpoint: checkpoints.Checkpoint
    encoding: Encoding
    # Of a classifier: its labels, and whether its texts are pairs.
    kind: Optional[label_types.Kind] = None
    takes_pairs: bool = False

    @property
    def digest(self) -> str:
        """Identifies its checkpoint, in whatever folder: the index holds a checksum of each value."""
        with open(self.checkpoint.path + ".index", "rb") as file:
            return files.hash_of(file.read())


def load(directory: str) -> Teacher:
    """The classifier of a training's output directory, of an export, or a converted one.

    Raises:
        UserError: there is none.
    """
    if not (saved_model.is_there(directory) or model_folder.known(directory)):
        raise UserError(f"--teacher={directory} is no trained classifier: it must be the output "
                        "directory of a training, an export or a converted classifier")
    model = model_folder.load(directory, "--teacher")
    return Teacher(model.config, model_folder.checkpoint_of(directory, "--teacher"), model.encoding,
                   model.task.kind, model.takes_pairs)


def load_encoder(directory: str, max_seq_length: int) -> Teacher:
    """The model of a folder: bert_config.json, vocab.txt and a checkpoint, with or without heads.

    Raises:
        UserError: one of them is missing, or they do not belong together.
    """
    config = load_config(os.path.join(directory, "bert_config.json"))
    checkpoint = checkpoints.open_checkpoint(directory, "--teacher")
    encoding = load_encoding(
        os.path.join(directory, vocabulary.FILE), max_seq_length=max_seq_length,
        do_lower_case=vocabulary.is_lower_cased(directory), vocab_size=config.vocab_size)
    return Teacher(config, checkpoint, encoding)


def encoder(teacher: Teacher, features: Dict[str, tf.Tensor],
            computation: modeling.Computation, *,
            gives_attention_scores: bool) -> modeling.BertModel:
    """The teacher's encoder beside a student's, its variables in a scope of their own."""
    with checkpoints.frozen(teacher.checkpoint, SCOPE):
        return modeling.BertModel(
            teacher.config, False, features["input_ids"], features["input_mask"],
            features["segment_ids"], gives_attention_scores=gives_attention_scores,
            computation=computation)


def with_outputs(teacher: Teacher, texts: TextSet, devices: Devices, *,
                 per_replica_batch_size: int, store_dir: str) -> Source:
    """The texts and labels with the teacher's output for each, "teacher_logits" [b, outputs].

    A student that reads them needs no teacher in its graph. They are computed on all
    replicas once, and kept in a store beside that of the texts.
    """
    source = texts.source(with_labels=True)
    outputs = store.open_or_build(
        store_dir, "teacher-outputs",
        {"texts": os.path.basename(texts.records.directory), "teacher": teacher.digest,
         "config": teacher.config.to_dict()},
        {"logits": store.Column("float32", ragged=True)},
        lambda: _outputs(teacher, texts, devices, per_replica_batch_size))

    def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        logits, _ = outputs.values("logits", indices)
        return {**source.fetch(indices, length),
                "teacher_logits": logits.reshape(len(indices), -1)}

    return source._replace(fetch=fetch)


def _outputs(teacher: Teacher, texts: TextSet, devices: Devices,
             per_replica_batch_size: int) -> Iterator[store.Chunk]:
    source = texts.source(with_labels=False)
    forward = classifier.forward_of(teacher.config, teacher.kind.num_outputs)
    with Predictor(forward, source, devices) as predictor, \
            Counter("Asking the teacher", unit="examples", total=len(texts)) as counter:
        predictor.restore(teacher.checkpoint)
        for start in range(0, len(texts), _CHUNK_EXAMPLES):
            logits = predictor.predict(_part(source, start, start + _CHUNK_EXAMPLES),
                                       per_replica_batch_size, counter.advance)["logits"]
            yield {"logits": (logits.ravel(), np.full(len(logits), logits.shape[1]))}


def _part(source: Source, start: int, end: int) -> Source:
    return source._replace(
        lengths=source.lengths[start:end],
        fetch=lambda indices, length: source.fetch(indices + start, length))

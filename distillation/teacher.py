"""The teacher: a trained model whose states or logits a student learns.

It is run without dropout and never trained.
"""

import os
from typing import Dict, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import bert, classifier, vocabulary
from encoder.config import load_config
from encoder.encoding import Encoding, load_encoding
from engine import checkpoints, files, saved_model
from engine.data import store
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import INFERENCE
from engine.progress import Counter
from tasks import label_types, model_folder
from tasks.data import TextSet

SCOPE = "teacher"  # of the teacher's variables in the student's graph

_CHUNK_EXAMPLES = 1 << 17  # logits of so many examples are in memory at a time


class Teacher(NamedTuple):
    """A trained classifier, or an encoder. Made by `load` and `load_encoder`."""
    config: modeling.BertConfig
    checkpoint: checkpoints.Checkpoint
    encoding: Encoding
    # Only of a classifier: its labels, and whether it takes pairs of texts.
    kind: Optional[label_types.Kind] = None
    takes_pairs: bool = False

    @property
    def digest(self) -> str:
        """A hash of its checkpoint's index, which has a checksum of each variable's values."""
        return files.hash_of_file(self.checkpoint.path + ".index")


def load(directory: str) -> Teacher:
    """The classifier in the output directory of a training, an export, or a converted model.

    Raises:
        UserError: there is none.
    """
    if not (saved_model.is_there(directory) or model_folder.saved_labels(directory)):
        raise UserError(f"--teacher={directory} is not a trained classifier: it must be the output "
                        "directory of a training, an export or a converted classifier")
    model = model_folder.load(directory, "--teacher")
    return Teacher(model.config, model_folder.checkpoint_of(directory, "--teacher"), model.encoding,
                   model.kind, model.takes_pairs)


def load_encoder(directory: str, max_seq_length: int) -> Teacher:
    """The encoder of any model: a folder with bert_config.json, vocab.txt and a checkpoint.

    Raises:
        UserError: a file is missing, or the files do not match.
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
    """Builds the teacher's encoder in the student's graph, with its variables below SCOPE."""
    with checkpoints.frozen(teacher.checkpoint, SCOPE):
        return bert.build(teacher.config, features, INFERENCE._replace(computation=computation),
                          gives_attention_scores=gives_attention_scores)


def with_outputs(teacher: Teacher, texts: TextSet, devices: Devices, *,
                 per_replica_batch_size: int, store_dir: str) -> Source:
    """The texts and labels with the teacher's logits, "teacher_logits" [b, outputs].

    The logits are computed once, on all replicas, and kept in a store, so that the student's
    graph does not need the teacher.
    """
    source = texts.source(with_labels=True)
    outputs = store.open_or_build(
        store_dir, "teacher-outputs",
        {"texts": os.path.basename(texts.records.directory), "teacher": teacher.digest,
         "config": teacher.config.to_dict()},
        {"logits": store.Column("float32", ragged=True)},
        lambda: _outputs(teacher, texts, devices, per_replica_batch_size), settles_later=True)

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
            Counter("Computing the teacher's logits", unit="examples",
                    total=len(texts)) as counter:
        predictor.restore(teacher.checkpoint)
        for start in range(0, len(texts), _CHUNK_EXAMPLES):
            logits = predictor.predict(_part(source, start, start + _CHUNK_EXAMPLES),
                                       per_replica_batch_size, counter.advance)["logits"]
            yield {"logits": (logits.ravel(), np.full(len(logits), logits.shape[1]))}


def _part(source: Source, start: int, end: int) -> Source:
    return source._replace(
        lengths=source.lengths[start:end],
        fetch=lambda indices, length: source.fetch(indices + start, length))

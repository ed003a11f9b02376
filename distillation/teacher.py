"""The teacher: a trained model whose states or logits a student learns.

It is run without dropout and never trained.
"""

from typing import Any, Dict, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import classifier, model_files
from encoder.encoding import Encoding
from engine.checkpoints import checkpoints
from engine.data import store
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.disk import files
from engine.inference import Predictor
from engine.progress import Counter
from runs import kinds
from tasks.data import TrainingSet

SCOPE = "teacher"  # of the teacher's variables in the student's graph

_CHUNK_EXAMPLES = 1 << 17  # logits of so many examples are in memory at a time


class Teacher(NamedTuple):
    """A trained classifier, or an encoder. Made by `load` and `load_encoder`."""
    config: modeling.BertConfig
    checkpoint: checkpoints.Checkpoint
    encoding: Encoding
    own: Any = None  # of a classifier, see `runs.head.Model`

    @property
    def digest(self) -> str:
        """A hash of its checkpoint's index, which has a checksum of each variable's values."""
        return files.hash_of_file(self.checkpoint.path + ".index")


def load(directory: str) -> Teacher:
    """The classifier in the output directory of a training, an export, or a converted model.

    Raises:
        UserError: there is none, or its labels are not known.
    """
    trained = model_files.open_model(directory, "--teacher", model_files.LABELS)
    own, config, encoding = kinds.head_of(trained.description()["kind"]).open(trained)
    return Teacher(config, trained.checkpoint, encoding, own)


def load_encoder(directory: str, max_seq_length: int) -> Teacher:
    """The encoder of any model folder.

    Raises:
        UserError: a file is missing, or the files do not match.
    """
    model = model_files.open_model(directory, "--teacher")
    return Teacher(model.config(), model.checkpoint, model.encoding(max_seq_length))


def with_outputs(teacher: Teacher, examples: TrainingSet, devices: Devices, *,
                 per_replica_batch_size: Optional[int], store_dir: str) -> Source:
    """The examples and labels with the teacher's logits, "teacher_logits" [b, outputs].

    The logits are computed once, on all replicas, and kept in a store, so that the student's
    graph does not need the teacher.
    """
    source = examples.source(with_labels=True)
    outputs = store.open_or_build(
        store_dir, "teacher-outputs",
        {"texts": examples.store_name, "teacher": teacher.digest,
         "config": teacher.config.to_dict(),
         **({} if devices.dtype == tf.float32 else {"type": devices.dtype.name})},
        {"logits": store.Column("float32", ragged=True)},
        lambda: _outputs(teacher, examples, devices, per_replica_batch_size))

    def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        logits, _ = outputs.values("logits", indices)
        return {**source.fetch(indices, length),
                "teacher_logits": logits.reshape(len(indices), -1)}

    return source._replace(fetch=fetch)


def _outputs(teacher: Teacher, examples: TrainingSet, devices: Devices,
             per_replica_batch_size: Optional[int]) -> Iterator[store.Chunk]:
    source = examples.source(with_labels=False)
    forward = classifier.forward_of(teacher.config, teacher.own.kind.num_outputs)
    with Predictor(forward, devices) as predictor, \
            Counter("Computing the teacher's logits", unit="examples",
                    total=len(examples)) as counter:
        predictor.restore(teacher.checkpoint)
        for start in range(0, len(examples), _CHUNK_EXAMPLES):
            logits = predictor.predict(source.part(start, start + _CHUNK_EXAMPLES),
                                       per_replica_batch_size, counter.advance)["logits"]
            yield {"logits": (logits.ravel(), np.full(len(logits), logits.shape[1]))}

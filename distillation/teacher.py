"""The teacher: a trained model whose states, logits or vectors a student learns.

It is run without dropout and never trained.
"""

from typing import Dict, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import model_files, task_json
from encoder.encoding import Encoding
from engine.checkpoints import checkpoints
from engine.data import store
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.disk import files
from engine.inference import Predictor
from engine.progress import Counter
from runs import kinds
from runs.capability import Capability

SCOPE = "teacher"  # of the teacher's variables in the student's graph

_CHUNK_EXAMPLES = 1 << 17  # outputs of so many examples are in memory at a time


class Teacher(NamedTuple):
    """A trained classifier, a model for similarity, or an encoder. Made by `load` and `load_encoder`."""
    config: modeling.BertConfig
    checkpoint: checkpoints.Checkpoint
    encoding: Encoding
    model: Optional[Capability] = None  # None of an encoder
    kind: str = ""  # of the model, see `runs.kinds`
    outputs: str = "logits"  # the name of its prediction: a model for similarity gives "vectors"

    @property
    def digest(self) -> str:
        """A hash of its checkpoint's index."""
        return files.hash_of_file(self.checkpoint.index_file)


def load(directory: str) -> Teacher:
    """The model in the output directory of a training, an export, or a converted model."""
    trained = model_files.open_folder(directory, "--teacher")
    description = trained.description() or {}
    gives_vectors = task_json.gives_vectors(description)
    if not gives_vectors:
        model_files.require_labels(trained)
    model = kinds.model_in(trained)
    return Teacher(model.config, trained.checkpoint, model.encoding, model, description["kind"],
                   "vectors" if gives_vectors else "logits")


def load_encoder(directory: str, max_seq_length: int) -> Teacher:
    """The encoder of any model folder."""
    trained = model_files.open_folder(directory, "--teacher")
    return Teacher(trained.config(), trained.checkpoint, trained.encoding(max_seq_length))


def with_outputs(teacher: Teacher, source: Source, inputs: Source, content: str, devices: Devices,
                 *, used: np.ndarray, per_replica_batch_size: Optional[int],
                 store_dir: str) -> Source:
    """A source that also has the teacher's "teacher_logits" or "teacher_vectors", [b, outputs].

    They are computed once, on all replicas, and kept in a store, so that the student's graph does
    not need the teacher.

    Args:
        inputs: the same records as the encoder reads them, without labels.
        content: identifies the records.
        used: the numbers of those that the training sees, ascending; the others get no outputs.
    """
    name, orders = teacher.outputs, teacher.checkpoint.rows.get("output_bias")

    def chunks() -> Iterator[store.Chunk]:
        with Predictor(teacher.model.forward(), devices) as predictor, Counter(
                f"Computing the teacher's {name}", unit="examples", total=len(used)) as counter:
            predictor.restore(teacher.checkpoint)
            for start in range(0, len(used), _CHUNK_EXAMPLES):
                rows = predictor.predict(inputs.subset(used[start:start + _CHUNK_EXAMPLES]),
                                         per_replica_batch_size, counter.advance)[name]
                yield {name: (rows.ravel(), np.full(len(rows), rows.shape[1]))}

    outputs = store.open_or_build(
        store_dir, "teacher-outputs",
        {"texts": content, "teacher": teacher.digest, "config": teacher.config.to_dict(),
         **(teacher.model.describe() if name == "vectors" else {}),
         **({} if devices.dtype == tf.float32 else {"type": devices.dtype.name}),
         **({"rows": list(map(list, orders))} if orders else {}),
         **({} if len(used) == len(inputs.lengths) else {"used": files.hash_of(used.tobytes())})},
        {name: store.Column("float32", ragged=True)}, chunks)

    def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        values, _ = outputs.values(name, np.searchsorted(used, indices))
        return {**source.fetch(indices, length),
                f"teacher_{name}": values.reshape(len(indices), -1)}

    return source._replace(fetch=fetch)

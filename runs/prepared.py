"""A model's file for onnxruntime, with what opens the model's reader without TensorFlow.

An export has it; else the first start of the service makes it.
"""

import contextlib
import glob
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import label_types, model_files, task_json
from encoder.model_files import ModelFiles
from engine import inference
from engine.checkpoints import checkpoints, onnx_file
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Features, Source
from engine.disk import artifact, files, provenance
from engine.disk.artifact import Artifact
from engine.errors import UserError
from engine.model import INFERENCE
from engine.version import VERSION
from runs import kinds
from runs.capability import Job, Reader
from runs.rows import Example

FLOAT32, INT8 = WEIGHTS = ("float32", "int8")
_NAME = re.compile(rf"(.*/)?serving-[0-9a-f]{{16}}(-{INT8})?\.onnx")
_BATCH_TOKENS = 2048
_EQUAL = 0.01  # the largest difference of two equal numbers, relative


class Prepared(Artifact):
    """The file of a model. A hash of the model's own files is in its name.

    Args:
        path: the output directory of a training, or an export.
        flag: that names it, for errors.
        weights: their type, one of WEIGHTS.
        folder: where the file is; default: in the model's folder.

    Attributes:
        weights: see above.

    Raises:
        UserError: there is no model.
    """
    _types = {"facts": dict, "checkpoint": str, "shapes": dict}

    def __init__(self, path: str, flag: str, weights: str = FLOAT32, folder: Optional[str] = None):
        self._model, self._flag, self.weights = path, flag, weights
        self._folder = model_files.folder_of(path)
        own = {name: files.hash_of_file(source) for name, source in _sources(path, flag).items()}
        kept_in = self._folder if folder is None else folder
        self._prefix = os.path.join(kept_in, f"serving-{artifact.key_of({'version': VERSION, **own})}")
        super().__init__(f"{self._prefix}{'' if weights == FLOAT32 else f'-{weights}'}.onnx",
                         {"version": VERSION, "weights": weights, **own})

    def kept_in(self, folder: str) -> "Prepared":
        """The same in another folder."""
        return Prepared(self._model, self._flag, self.weights, folder)

    def open(self) -> Tuple[ModelFiles, Reader]:
        """The model, whose checkpoint is not read, and how it reads texts."""
        record = self.record()
        checkpoint = Checkpoint(os.path.join(self._folder, record["checkpoint"]), record["shapes"], {})
        trained = ModelFiles(self._model, self._flag, self._folder, checkpoint)
        return trained, kinds.model_in(trained).reader()

    def make(self) -> None:
        """Converts the model, with TensorFlow; removes the files of other checkpoints."""
        if self.weights != FLOAT32:
            source = Prepared(self._model, self._flag)
            if source.state().name != artifact.WHOLE:
                source = source.kept_in(os.path.dirname(self.path))
                source.make()
            with self.written(self._entries(source.record())) as draft:
                onnx_file.quantize(draft, source.path)
            return
        trained, reader = kinds.open_reader(self._model, self._flag)
        shapes = {name: trained.checkpoint.shapes[name] for name in trained.checkpoint.parameters()}
        with self.written(self._entries({
                "checkpoint": os.path.relpath(trained.checkpoint.path, self._folder or "."),
                "shapes": shapes})) as draft:
            _convert(draft, trained, reader)
        pattern = os.path.join(glob.escape(os.path.dirname(self.path)), "serving-*.onnx")
        for other in filter(_NAME.fullmatch, glob.glob(pattern)):
            # A user's own file has no such record; another process may remove a file, too.
            with contextlib.suppress(UserError, OSError):
                facts = files.read_record(f"{other}.json", "the record", self._types)["facts"]
                # Another version may serve these checkpoints.
                if {**facts, "version": VERSION, "weights": self.weights} != self.facts:
                    os.remove(other)
                    os.remove(f"{other}.json")

    def _entries(self, record: Mapping[str, Any]) -> Dict[str, Any]:
        return {"facts": provenance.as_json(self.facts), "checkpoint": record["checkpoint"],
                "shapes": record["shapes"]}


def _sources(path: str, flag: str) -> Dict[str, str]:
    """The files that determine what a model computes, by their names in its folder."""
    if checkpoints.is_saved_model(path):
        found = [os.path.join(path, f"{checkpoints.EXPORTED}.index")]
    elif os.path.isdir(path):
        # Any other checkpoint may be a better one.
        found = [*glob.glob(os.path.join(glob.escape(path), "*.index")), os.path.join(path, checkpoints.EVALUATIONS)]
    else:
        found = [re.sub(r"(\.index)?$", ".index", path, count=1)]
    folder = model_files.folder_of(path)
    found = [name for name in found if os.path.exists(name)]
    if not any(name.endswith(".index") for name in found):
        raise UserError(f"{flag}={path}: no trained model: no folder with a checkpoint, and no prefix of one")
    found += [os.path.join(folder, name) for name in (model_files.CONFIG, task_json.FILE)]
    return {os.path.basename(name): name for name in found if os.path.exists(name)}


def example_of(reader: Reader) -> Source:
    """A record, as the reader makes it."""
    return reader.encode([Example(("?",) * reader.takes.least)]).source


def features(record: Source) -> Features:
    """The features of a batch of one record."""
    return record.fetch(np.zeros(1, np.int64), record.padded_length(np.array([0])))


def _convert(path: str, trained: ModelFiles, reader: Reader) -> None:
    session = inference.DeviceSession(
        reader.forward, INFERENCE._replace(computation=modeling.Computation(inlined=True)),
        features(example_of(reader)), "/cpu:0", tf.ConfigProto(device_count={"GPU": 0}))
    with contextlib.closing(session):
        session.restore(trained.checkpoint)
        graph = onnx_file.frozen(session.session, [tensor.name for tensor in session.predictions.values()])
    used = {node.name for node in graph.node}
    onnx_file.convert(
        path, graph, {tensor.name: name for name, tensor in session.inputs.items() if tensor.op.name in used},
        {tensor.name: name for name, tensor in session.predictions.items()})


def agreement(job: Job, dev: Any, exact: Prepared, int8: Prepared) -> Dict[str, str]:
    """How a file in int8 answers a labelled set beside the one in float32: the share of equal answers, each metric."""
    first, second = (_Predictions(each.path) for each in (exact, int8))
    results, others = (job.model.measure(job, dev, each).results for each in (first, second))
    return {**_shares(job.model.describe(), first.values(), second.values()),
            **{name: f"{value:.5g} in float32, {others[name]:.5g} in int8" for name, value in results.items()}}


class _Predictions:
    """A `Predict` that onnxruntime computes."""

    def __init__(self, path: str):
        self._session = onnx_file.open_session(path, len(os.sched_getaffinity(0)))
        self._parts: List[Tuple[np.ndarray, Dict[str, np.ndarray]]] = []  # of all calls, by consecutive numbers

    def values(self) -> Dict[str, np.ndarray]:
        """All predictions."""
        return inference.in_order(self._parts, sum(len(numbers) for numbers, _ in self._parts))

    def __call__(self, source: Source) -> Dict[str, np.ndarray]:
        computed = inference.predict([self._run], source, _BATCH_TOKENS)
        first = sum(len(numbers) for numbers, _ in self._parts)
        self._parts.append((np.arange(first, first + len(source.lengths)), computed))
        return computed

    def _run(self, features: Features) -> Features:
        names = [tensor.name for tensor in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, {
            tensor.name: features[tensor.name] for tensor in self._session.get_inputs()})))


def _shares(description: Mapping[str, Any], one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
            ) -> Dict[str, str]:
    """How many of n records have equal answers in two predictions, each [n, ...]."""
    if task_json.gives_vectors(description):
        cosines = (one["vectors"] * other["vectors"]).sum(axis=-1)
        return {"cosine of a text's two vectors, at least": f"{cosines.min():.4f}"}
    if task_json.is_classifier(description):
        kind = label_types.of_description(description, "")
        one, other = ({"labels": kind.predicted_labels(kind.scores(each["logits"]))} for each in (one, other))
    shares = {}
    for name in one.keys() - {"loss"}:
        answers = [each[name] for each in (one, other)]
        if answers[0].dtype.kind == "f" and answers[0].ndim == 2:  # scores of tokens
            answers = [each.argmax(axis=1) for each in answers]
        are_equal = np.isclose(*answers, rtol=_EQUAL if answers[0].dtype.kind == "f" else 0.0)
        shares[f"equal answers, {name}"] = f"{are_equal.reshape(len(are_equal), -1).all(axis=1).mean():.2%}"
    return shares

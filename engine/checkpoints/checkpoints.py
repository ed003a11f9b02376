"""Finds and checks checkpoints, and initializes a model from one."""

import contextlib
import os
import re
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from engine.checkpoints import checkpoint_files
from engine.disk import files
from engine.errors import UserError
from multigpu_optimizer import UPDATES
from optimization import LossScale

# The variables that training adds to a checkpoint; a model initialized from it ignores them.
SLOT_SUFFIXES = ("/adam_m", "/adam_v")
_TRAINING_STATE = (tf.GraphKeys.GLOBAL_STEP, UPDATES, *LossScale.NAMES)

# File in an output directory with the results of the evaluations during training and the name of
# the best checkpoint. `engine.training.evaluations` writes it.
EVALUATIONS = "evaluations.json"
# The graph in the folder of a SavedModel, and the prefix of its variables.
GRAPH_FILE = "saved_model.pb"
EXPORTED = os.path.join("variables", "variables")


class Checkpoint(NamedTuple):
    """A checkpoint on disk. Made by `open_checkpoint`."""
    path: str  # prefix of its files
    shapes: Dict[str, List[int]]  # variable's name → shape
    dtypes: Dict[str, tf.DType]
    stored_names: Mapping[str, str] = {}  # name → name in the files, where these differ
    # Name → for its first dimensions, where each row of the model's value stands in the stored one.
    rows: Mapping[str, Sequence[Sequence[int]]] = {}
    given: Mapping[str, np.ndarray] = {}  # the values of variables that the files do not determine, by name

    def renamed(self, names: Mapping[str, str]) -> "Checkpoint":
        """The checkpoint with only these variables, under new names: {new name: name}."""
        shapes, dtypes, rows, given = ({new: values[name] for new, name in names.items() if name in values}
                                       for values in (self.shapes, self.dtypes, self.rows, self.given))
        return Checkpoint(self.path, shapes, dtypes, {
            new: self.stored_names.get(name, name) for new, name in names.items()}, rows, given)

    def with_values(self, given: Mapping[str, np.ndarray]) -> "Checkpoint":
        """The checkpoint with these values, float32, of variables that it lacks."""
        return self._replace(
            shapes={**self.shapes, **{name: list(value.shape) for name, value in given.items()}},
            dtypes={**self.dtypes, **dict.fromkeys(given, tf.float32)}, given={**self.given, **given})

    @property
    def index_file(self) -> str:
        """The file that stands for the content of all: it holds a checksum of every tensor."""
        return f"{self.path}.index"

    @property
    def is_as_stored(self) -> bool:
        """Whether all variables have their names and values in the files."""
        return not self.rows and not self.given and all(name == stored for name, stored in self.stored_names.items())

    def value(self, name: str) -> np.ndarray:
        """The value of a variable."""
        if name in self.given:
            return self.given[name]
        value = tf.train.load_variable(self.path, self.stored_names.get(name, name))
        return value[np.ix_(*self.rows[name])] if name in self.rows else value

    @property
    def global_step(self) -> int:
        """The step it was saved at; 0 if it has no global step, like released models."""
        if tf.GraphKeys.GLOBAL_STEP not in self.shapes:
            return 0
        with checkpoint_files.reading(self.path):
            return int(tf.train.load_variable(self.path, tf.GraphKeys.GLOBAL_STEP))

    def describe(self) -> str:
        """The path, and the step if it has one."""
        return f"{self.path} (step {self.global_step})" if self.global_step else self.path

    def parameters(self) -> List[str]:
        """Names of the model's variables, without those that training adds."""
        return sorted(name for name in self.shapes
                      if name not in _TRAINING_STATE and not name.endswith(SLOT_SUFFIXES))


def latest(directory: str) -> Optional[Checkpoint]:
    """The newest undamaged checkpoint of an output directory; None if it has no checkpoints.

    Warns of newer, damaged ones.
    """
    _check_path(directory, directory)
    names = checkpoint_files.list_checkpoints(directory)[::-1]
    newest = _first_whole(directory, names, "the newest checkpoint that is whole is taken")
    if not newest and names:
        damage = checkpoint_files.damage(os.path.join(directory, names[0]))
        raise UserError(f"{directory}: all checkpoints are damaged (the newest, {names[0]}: {damage}); "
                        "remove them to start anew")
    return newest


def best(directory: str) -> Optional[Checkpoint]:
    """The best checkpoint by the evaluations during training, else the newest, else None.

    Skips damaged ones, with a warning.
    """
    return (_first_whole(directory, _best_names(directory), "the next best is taken")
            or latest(directory))


def _first_whole(directory: str, names: Sequence[str], instead: str) -> Optional[Checkpoint]:
    """The first of these checkpoints that exists undamaged; warns of damaged ones."""
    for prefix in (os.path.join(directory, name) for name in names):
        if checkpoint_files.exists(prefix):
            damage = checkpoint_files.damage(prefix)
            if not damage:
                return describe(prefix)
            checkpoint_files.warn_once(f"{prefix} is damaged ({damage}): {instead}")
    return None


def checkpoint_name(step: int) -> str:
    """The name of a training's checkpoint at this step."""
    return f"{checkpoint_files.PREFIX}-{step}"


def has_whole(directory: str, step: int) -> bool:
    """Whether an output directory still has the checkpoint of this step; warns if it is damaged."""
    return bool(_first_whole(directory, [checkpoint_name(step)], "it does not count as the best"))


def open_checkpoint(path: str, what: str = "--init_checkpoint") -> Checkpoint:
    """Opens a checkpoint.

    Args:
        path: its prefix, its .index file, an output directory (its `best`), or an export.
        what: the flag that `path` comes from, for error messages.
    """
    prefix = _prefix_of(path, what)
    damage = checkpoint_files.damage(prefix)
    if damage:
        raise UserError(f"{what}={path} is no TensorFlow checkpoint, or is damaged: {damage}; "
                        "copy it again")
    return describe(prefix)


def is_saved_model(folder: str) -> bool:
    """Whether a folder is a SavedModel."""
    return os.path.isfile(os.path.join(folder, GRAPH_FILE))


def describe(prefix: str) -> Checkpoint:
    """The checkpoint with this prefix, without checking it for damage."""
    entries = checkpoint_files.read_index(f"{prefix}.index")
    return Checkpoint(
        prefix, {name: [dimension.size for dimension in entry.shape.dim]
                 for name, entry in entries.items()},
        {name: tf.as_dtype(entry.dtype) for name, entry in entries.items()})


def write_checkpoint(prefix: str, variables: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint with these variables."""
    names = sorted(variables)
    no_gpu = tf.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=no_gpu) as session:
        tensors = [tf.placeholder(variables[name].dtype, variables[name].shape) for name in names]
        save = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names,
                                 shape_and_slices=[""] * len(names), tensors=tensors)
        session.run(save, {tensor: variables[name] for tensor, name in zip(tensors, names)})


def read_evaluations(directory: str) -> Dict[str, Any]:
    """The record of the evaluations during a training: the best checkpoint, and all evaluations."""
    path = os.path.join(directory, EVALUATIONS)
    if not os.path.exists(path):
        return {"best_checkpoint": None, "evaluations": []}
    record = files.read_record(path, "the evaluations", {
        "best_checkpoint": (str, type(None)), "evaluations": list})
    for entry in record["evaluations"]:
        if not isinstance(entry, dict) or not _is_number(entry.get("step")) or not all(
                value is None or _is_number(value) for value in entry.values()):
            raise UserError(f"the evaluations {path} are damaged: one is {str(entry)[:60]}")
    return record


def _is_number(value: Any) -> bool:
    # Not NaN, nor an infinite number, nor an integer that is too large for a float.
    return type(value) in (int, float) and abs(value) <= np.finfo(np.float64).max


def lower_is_better(metric: str) -> bool:
    """Whether a lower value of a metric is better: of losses alone."""
    return "loss" in metric


def ranking(evaluations: Sequence[Mapping[str, Any]], metric: str) -> List[int]:
    """The steps of the evaluations with a finite metric, best first; ties by step."""
    sign = 1 if lower_is_better(metric) else -1
    finite = [evaluation for evaluation in evaluations if evaluation.get(metric) is not None]
    return [evaluation["step"]
            for evaluation in sorted(finite, key=lambda evaluation: sign * evaluation[metric])]


def _best_names(directory: str) -> List[str]:
    """The names of evaluated checkpoints, best first; empty if no best one is recorded."""
    record = read_evaluations(directory)
    if not record["best_checkpoint"]:
        return []
    # Only the base name counts: no path leads out of the directory.
    best_name = os.path.basename(record["best_checkpoint"])
    ranked = map(checkpoint_name, ranking(record["evaluations"], str(record.get("metric"))))
    return list(dict.fromkeys([best_name, *ranked]))


def _check_path(path: str, where: str) -> None:
    if re.search(r"\[.*\]|\\", path):
        raise UserError(f"{where}: TensorFlow takes [ ] and \\ in the path of a checkpoint for a pattern: use another name, "
                        "or give a link to the folder")


def _prefix_of(path: str, what: str) -> str:
    _check_path(path, f"{what}={path}")
    prefix = _prefix_in(path, what) if os.path.isdir(path) else re.sub(r"\.index$", "", path)
    if not checkpoint_files.exists(prefix):
        raise UserError(f"{what}={path}: no trained model: no folder, and no checkpoint with that prefix "
                        f"(expected {prefix}.index and {prefix}.data-00000-of-00001)")
    return prefix


def _prefix_in(folder: str, what: str) -> str:
    """The best or newest checkpoint of a training, the variables of an export, or the only one."""
    trained = best(folder)
    if trained:
        return trained.path
    if os.path.isdir(os.path.join(folder, os.path.dirname(EXPORTED))):
        return os.path.join(folder, EXPORTED)
    prefixes = sorted(name[:-len(".index")] for name in os.listdir(folder) if name.endswith(".index"))
    if not prefixes:
        raise UserError(f"{what}={folder} holds no checkpoint, so it is no trained model: give the "
                        "folder of one, or the prefix of a checkpoint such as bert_model.ckpt")
    if len(prefixes) > 1:
        raise UserError(f"{what}={folder} holds {len(prefixes)} checkpoints: give the prefix of "
                        f"one, such as {prefixes[0]}")
    return os.path.join(folder, prefixes[0])


class InitialValues:
    """Initializes a model's variables from a checkpoint, or else from a seed.

    Build the model inside `scope()`. Variables in the checkpoint are restored from it. Others are
    drawn by their initializers, each with a seed made from `seed` and the variable's name, so
    that its value does not depend on the rest of the graph.

    Args:
        is_frozen: (name of a variable) → whether it is not trained.

    Attributes:
        restored, drawn: the names of the variables that the checkpoint has, and of the others.
    """

    def __init__(self, checkpoint: Optional[Checkpoint], seed: int, *,
                 is_frozen: Callable[[str], bool] = lambda name: False):
        self.checkpoint = checkpoint
        self._seed = seed
        self._is_frozen = is_frozen
        self.restored: List[str] = []
        self.drawn: List[str] = []

    def scope(self):
        """A variable scope, without a name, in which variables are initialized as described."""
        return tf.variable_scope(tf.get_variable_scope(), custom_getter=self._get_variable)

    def unused(self) -> List[str]:
        """Parameters of the checkpoint that the model does not have."""
        return sorted(set(self.checkpoint.parameters()) - set(self.restored))

    def _get_variable(self, getter, name, *args, **kwargs):
        if tf.GraphKeys.LOCAL_VARIABLES in (kwargs.get("collections") or ()):
            return getter(name, *args, **kwargs)  # initialized by `frozen`
        if self._is_frozen(name):
            kwargs["trainable"] = False
        if self.checkpoint and name in self.checkpoint.shapes:
            check_shape(self.checkpoint, name, kwargs["shape"])
            names, kwargs["initializer"] = self.restored, _restored(self.checkpoint, name)
        else:
            names, kwargs["initializer"] = self.drawn, self._seeded(kwargs.get("initializer"), name)
        if name not in names:  # several micro-batches build the model, with the same names
            names.append(name)
        return getter(name, *args, **kwargs)

    def _seeded(self, initializer, name: str):
        if getattr(initializer, "seed", False) is not None:
            return initializer  # not random, or already seeded
        seed = (self._seed + zlib.crc32(name.encode("utf-8"))) % 2**31
        return type(initializer).from_config({**initializer.get_config(), "seed": seed})


def _restored(checkpoint: Checkpoint, name: str):
    def initializer(shape, dtype, partition_info=None):  # the interface of initializers
        del partition_info
        with _colocated_with_nothing(), tf.device("/cpu:0"):
            if name in checkpoint.given:
                return tf.ensure_shape(tf.constant(checkpoint.given[name], dtype), shape)
            value, = tf.raw_ops.RestoreV2(
                prefix=checkpoint.path, tensor_names=[checkpoint.stored_names.get(name, name)],
                shape_and_slices=[""], dtypes=[checkpoint.dtypes[name]])
            for axis, rows in enumerate(checkpoint.rows.get(name, ())):
                value = tf.gather(value, rows, axis=axis)
            return tf.cast(tf.ensure_shape(value, shape), dtype)
    return initializer


def _colocated_with_nothing():
    """A context whose operations are not colocated with the variable that they initialize.

    TensorFlow colocates an initializer's operations with its variable. Restoring has no kernel for
    GPUs, so soft placement would put the variable, its slots and its update on the CPU as well.
    """
    nothing = tf.AttrValue(list=tf.AttrValue.ListValue())
    return tf.get_default_graph()._attr_scope({"_class": nothing})


@contextlib.contextmanager
def frozen(checkpoint: Checkpoint, scope: str) -> Iterator[None]:
    """A scope for a second, frozen model beside the trained one.

    Its variables have the values of `checkpoint` and their names there, below `scope`. They are
    loaded at the start of each session and not saved in the training's checkpoints.
    """
    def get_variable(getter, name, *args, **kwargs):
        own_name = name[len(scope) + 1:]
        check_shape(checkpoint, own_name, kwargs["shape"])
        kwargs.update(initializer=_restored(checkpoint, own_name), trainable=False,
                      collections=[tf.GraphKeys.LOCAL_VARIABLES])
        return getter(name, *args, **kwargs)

    with tf.variable_scope(scope, custom_getter=get_variable):
        yield


def check_matches(checkpoint: Checkpoint, variables: Iterable[tf.Variable]) -> None:
    """Raises a UserError unless `checkpoint` can restore all of `variables`."""
    for variable in variables:
        check_shape(checkpoint, variable.op.name, variable.shape)


def check_shape(checkpoint: Checkpoint, name: str, shape: Sequence[int]) -> None:
    """Raises a UserError unless `checkpoint` has a variable of this name and shape."""
    needed, held = tf.TensorShape(shape).as_list(), checkpoint.shapes.get(name)
    if held != needed:
        state = "is missing" if held is None else f"has the shape {held}"
        raise UserError(f"{checkpoint.path} does not match the model: {name} {state}, and the model "
                        f"needs {needed}; the checkpoint, its config file and the task's labels "
                        "must match")

"""Finds and checks checkpoints, and initializes a model from one."""

import contextlib
import os
import zlib
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from engine import files
from engine.errors import UserError
from optimization import LossScale

# The variables that training adds to a checkpoint; a model initialized from it ignores them.
_SLOT_SUFFIXES = ("/adam_m", "/adam_v")
_TRAINING_STATE = (tf.GraphKeys.GLOBAL_STEP, *LossScale.NAMES)

PREFIX = "model.ckpt"  # of the checkpoints of a training, followed by "-" and the step
# File in an output directory with the results of the evaluations during training and the name of
# the best checkpoint. `engine.training.evaluations` writes it.
EVALUATIONS = "evaluations.json"
# The prefix of the variables in the folder of a SavedModel.
EXPORTED = os.path.join("variables", "variables")


class Checkpoint(NamedTuple):
    """A checkpoint on disk. Made by `open_checkpoint`."""
    path: str  # prefix of its files
    shapes: Dict[str, List[int]]  # by the names of the variables
    dtypes: Dict[str, tf.DType]
    stored_names: Mapping[str, str] = {}  # name → name in the files, where these differ

    def renamed(self, names: Mapping[str, str]) -> "Checkpoint":
        """The checkpoint with only these variables, under new names: {new name: name}."""
        return Checkpoint(self.path, {new: self.shapes[name] for new, name in names.items()},
                          {new: self.dtypes[name] for new, name in names.items()}, names)

    @property
    def global_step(self) -> int:
        """The step it was saved at; 0 if it has no global step, like released models."""
        if tf.GraphKeys.GLOBAL_STEP not in self.shapes:
            return 0
        return int(tf.train.load_variable(self.path, tf.GraphKeys.GLOBAL_STEP))

    def parameters(self) -> List[str]:
        """Names of the model's variables, without slots, global step and loss scale."""
        return sorted(name for name in self.shapes
                      if name not in _TRAINING_STATE and not name.endswith(_SLOT_SUFFIXES))


def latest(directory: str) -> Optional[Checkpoint]:
    """The newest checkpoint of an output directory, or None."""
    path = tf.train.latest_checkpoint(directory)
    return open_checkpoint(path, f"the latest checkpoint of {directory}") if path else None


def best(directory: str) -> Optional[Checkpoint]:
    """The best checkpoint by the evaluations during training, or else the newest, or None."""
    path = _best_path(directory)
    if path:
        return open_checkpoint(path, f"the best checkpoint of {directory}")
    return latest(directory)


def checkpoint_name(step: int) -> str:
    """The name of a training's checkpoint at this step."""
    return f"{PREFIX}-{step}"


def has_checkpoint(directory: str, step: int) -> bool:
    """Whether an output directory still has the checkpoint of this step."""
    return tf.train.checkpoint_exists(os.path.join(directory, checkpoint_name(step)))


def open_checkpoint(path: str, what: str = "--init_checkpoint") -> Checkpoint:
    """Opens a checkpoint.

    Args:
        path: its prefix, its .index file, its directory, which means `best`, or an export.
        what: the flag that `path` comes from, for error messages.

    Raises:
        UserError: it is missing, damaged or truncated.
    """
    prefix = _prefix_of(path, what)
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{what}={path} cannot be read as a TensorFlow checkpoint: "
                        f"{str(error).splitlines()[0]}") from error
    checkpoint = Checkpoint(prefix, shapes, dtypes)
    _check_size(checkpoint, what)
    return checkpoint


def write_checkpoint(prefix: str, variables: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint with these variables."""
    names = sorted(variables)
    no_gpu = tf.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=no_gpu) as session:
        tensors = [tf.placeholder(variables[name].dtype, variables[name].shape) for name in names]
        save = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names,
                                 shape_and_slices=[""] * len(names), tensors=tensors)
        session.run(save, {tensor: variables[name] for tensor, name in zip(tensors, names)})


def _best_path(directory: str) -> Optional[str]:
    path = os.path.join(directory, EVALUATIONS)
    name = (files.read_json(path, "the evaluations")["best_checkpoint"]
            if os.path.exists(path) else None)
    prefix = name and os.path.join(directory, name)
    return prefix if prefix and tf.train.checkpoint_exists(prefix) else None


def _prefix_of(path: str, what: str) -> str:
    if os.path.isdir(path):
        return _prefix_in(path, what)
    prefix = path[:-len(".index")] if path.endswith(".index") else path
    if not tf.train.checkpoint_exists(prefix):
        raise UserError(f"{what}={path}: there is no checkpoint with that prefix "
                        f"(expected {prefix}.index and {prefix}.data-00000-of-00001)")
    return prefix


def _prefix_in(folder: str, what: str) -> str:
    """The best or newest checkpoint of a training, the variables of an export, or the only one."""
    trained = _best_path(folder) or tf.train.latest_checkpoint(folder)
    if trained:
        return trained
    if os.path.isdir(os.path.join(folder, os.path.dirname(EXPORTED))):
        return _prefix_of(os.path.join(folder, EXPORTED), what)
    prefixes = sorted(name[:-len(".index")] for name in os.listdir(folder)
                      if name.endswith(".index"))
    if not prefixes:
        raise UserError(f"{what}={folder} holds no checkpoint, so it is no trained model: give the "
                        "folder of one, or the prefix of a checkpoint such as bert_model.ckpt")
    if len(prefixes) > 1:
        raise UserError(f"{what}={folder} holds {len(prefixes)} checkpoints: give the prefix of "
                        f"one, such as {prefixes[0]}")
    return os.path.join(folder, prefixes[0])


def _check_size(checkpoint: Checkpoint, what: str) -> None:
    """Refuses truncated files, such as an incomplete download: they would fail in a session."""
    directory, name = os.path.split(checkpoint.path)
    held = sum(os.path.getsize(os.path.join(directory, entry))
               for entry in os.listdir(directory or ".") if entry.startswith(f"{name}.data-"))
    needed = sum(int(np.prod(shape)) * checkpoint.dtypes[variable].size
                 for variable, shape in checkpoint.shapes.items()
                 if checkpoint.dtypes[variable] != tf.string)
    if held < needed:
        raise UserError(f"{what}={checkpoint.path} is cut short: its .data files have {held:,} "
                        f"bytes of {needed:,}; copy it again")


class InitialValues:
    """Initializes a model's variables from a checkpoint, or else from a seed.

    Build the model inside `scope()`. A variable that the checkpoint has gets its value there; any
    other one is drawn by its initializer, with a seed made from `seed` and the variable's name, so
    that its value does not depend on the rest of the graph.
    """

    def __init__(self, checkpoint: Optional[Checkpoint], seed: int):
        self._checkpoint = checkpoint
        self._seed = seed
        self.found: List[str] = []
        self.not_found: List[str] = []

    def scope(self):
        """A variable scope, without a name, in which variables are initialized as described."""
        return tf.variable_scope(tf.get_variable_scope(), custom_getter=self._get_variable)

    def unused(self) -> List[str]:
        """Parameters of the checkpoint that the model does not have."""
        if not self._checkpoint:
            return []
        return sorted(set(self._checkpoint.parameters()) - set(self.found))

    def _get_variable(self, getter, name, *args, **kwargs):
        if tf.GraphKeys.LOCAL_VARIABLES in (kwargs.get("collections") or ()):
            return getter(name, *args, **kwargs)  # initialized by `frozen`
        if self._checkpoint and name in self._checkpoint.shapes:
            self._check_shape(name, kwargs["shape"])
            self._note(self.found, name)
            kwargs["initializer"] = _restored(self._checkpoint, name)
        else:
            self._note(self.not_found, name)
            kwargs["initializer"] = self._seeded(kwargs.get("initializer"), name)
        return getter(name, *args, **kwargs)

    @staticmethod
    def _note(names: List[str], name: str) -> None:
        if name not in names:  # each replica builds the model, with the same names
            names.append(name)

    def _check_shape(self, name: str, shape: Sequence[int]) -> None:
        needed, held = tf.TensorShape(shape).as_list(), self._checkpoint.shapes[name]
        if needed != held:
            raise UserError(f"{self._checkpoint.path}: {name} has the shape {held}, and the model "
                            f"needs {needed}; the checkpoint, --bert_config_file and the task's "
                            "labels must match")

    def _seeded(self, initializer, name: str):
        if getattr(initializer, "seed", False) is not None:
            return initializer  # is not random, or has a seed already
        seed = (self._seed + zlib.crc32(name.encode("utf-8"))) % 2**31
        return type(initializer).from_config({**initializer.get_config(), "seed": seed})


def _restored(checkpoint: Checkpoint, name: str):
    def initializer(shape, dtype, partition_info=None):  # the interface of initializers
        del partition_info
        with _colocated_with_nothing(), tf.device("/cpu:0"):
            value, = tf.raw_ops.RestoreV2(
                prefix=checkpoint.path, tensor_names=[checkpoint.stored_names.get(name, name)],
                shape_and_slices=[""], dtypes=[checkpoint.dtypes[name]])
            return tf.cast(tf.ensure_shape(value, shape), dtype)
    return initializer


def _colocated_with_nothing():
    """A context whose operations are not bound to the variable that they initialize.

    TensorFlow binds an initializer's operations to its variable. Restoring has no kernel for
    GPUs, so soft placement would put the variable, its slots and its update on the CPU as well.
    """
    nothing = tf.AttrValue(list=tf.AttrValue.ListValue())
    return tf.get_default_graph()._attr_scope({"_class": nothing})


@contextlib.contextmanager
def frozen(checkpoint: Checkpoint, scope: str) -> Iterator[None]:
    """A scope for building a second model, which is not trained, beside the one that is.

    Its variables have the values of `checkpoint` and their names there, below `scope`. They are
    loaded at the start of each session and not saved in the training's checkpoints.

    Raises:
        UserError: the checkpoint lacks a variable.
    """
    def get_variable(getter, name, *args, **kwargs):
        own_name = name[len(scope) + 1:]
        held = checkpoint.shapes.get(own_name)
        if held != tf.TensorShape(kwargs["shape"]).as_list():
            raise UserError(f"{checkpoint.path} does not match its config: {own_name} "
                            f"{'is missing' if held is None else f'has the shape {held}'}, and the "
                            f"config needs {kwargs['shape']}")
        kwargs.update(initializer=_restored(checkpoint, own_name), trainable=False,
                      collections=[tf.GraphKeys.LOCAL_VARIABLES])
        return getter(name, *args, **kwargs)

    with tf.variable_scope(scope, custom_getter=get_variable):
        yield


def check_matches(checkpoint: Checkpoint, variables: Sequence[tf.Variable]) -> None:
    """Raises a UserError unless `checkpoint` can restore all of `variables`."""
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        held = checkpoint.shapes.get(name)
        if held != shape:
            state = "is missing" if held is None else f"has the shape {held}"
            raise UserError(f"{checkpoint.path} does not match the model: {name} {state}, "
                            f"and the model needs {shape}; the checkpoint (of --output_dir or "
                            "--init_checkpoint), --bert_config_file and the task must match")

"""Checkpoints: finding them, checking them, starting a model from one."""

import contextlib
import os
import zlib
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from engine import files
from engine.errors import UserError
from optimization import LossScale

# What training adds to a model in a checkpoint; a model that starts from one leaves it.
_SLOT_SUFFIXES = ("/adam_m", "/adam_v")
_TRAINING_STATE = (tf.GraphKeys.GLOBAL_STEP, *LossScale.NAMES)

# A training's checkpoints are called so, and the step.
PREFIX = "model.ckpt"
# In an output directory: what the evaluations during its training found, and the name of the
# best checkpoint. `engine.training.evaluations` writes it.
EVALUATIONS = "evaluations.json"


class Checkpoint(NamedTuple):
    """A checkpoint on disk. Made by `open_checkpoint`."""
    path: str  # prefix of its files
    shapes: Dict[str, List[int]]
    dtypes: Dict[str, tf.DType]
    stored_names: Mapping[str, str] = {}  # of the variables that its files name otherwise

    def renamed(self, names: Mapping[str, str]) -> "Checkpoint":
        """A checkpoint of some of its variables, {new name: name}."""
        return Checkpoint(self.path, {new: self.shapes[name] for new, name in names.items()},
                          {new: self.dtypes[name] for new, name in names.items()}, names)

    @property
    def global_step(self) -> int:
        """The step it was saved at; 0 where it holds none, as a released model does."""
        if tf.GraphKeys.GLOBAL_STEP not in self.shapes:
            return 0
        return int(tf.train.load_variable(self.path, tf.GraphKeys.GLOBAL_STEP))

    def parameters(self) -> List[str]:
        """Names of the model's variables: neither slots, step nor loss scale."""
        return sorted(name for name in self.shapes
                      if name not in _TRAINING_STATE and not name.endswith(_SLOT_SUFFIXES))


def latest(directory: str) -> Optional[Checkpoint]:
    """The newest checkpoint of an output directory, or None."""
    path = tf.train.latest_checkpoint(directory)
    return open_checkpoint(path, f"the latest checkpoint of {directory}") if path else None


def best(directory: str) -> Optional[Checkpoint]:
    """The best by the evaluations during the training, or else the newest; None without any."""
    path = _best_path(directory)
    if path:
        return open_checkpoint(path, f"the best checkpoint of {directory}")
    return latest(directory)


def name_of(step: int) -> str:
    """The name of a training's checkpoint."""
    return f"{PREFIX}-{step}"


def is_kept(directory: str, step: int) -> bool:
    """Whether an output directory still holds its training's checkpoint of a step."""
    return tf.train.checkpoint_exists(os.path.join(directory, name_of(step)))


def open_checkpoint(path: str, what: str = "--init_checkpoint") -> Checkpoint:
    """Opens a checkpoint given by prefix, by its .index file, or by its directory (its `best`).

    Raises:
        UserError: it is missing, damaged or cut short.
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
    """Writes arrays as a checkpoint's variables."""
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
        trained = _best_path(path) or tf.train.latest_checkpoint(path)
        if trained:
            return trained
        prefixes = sorted(name[:-len(".index")] for name in os.listdir(path)
                          if name.endswith(".index"))
        if len(prefixes) == 1:
            return os.path.join(path, prefixes[0])
        raise UserError(f"{what}={path} is a directory with {len(prefixes) or 'no'} checkpoints; "
                        "give one checkpoint's prefix, such as bert_model.ckpt")
    prefix = path[:-len(".index")] if path.endswith(".index") else path
    if not tf.train.checkpoint_exists(prefix):
        raise UserError(f"{what}={path}: there is no checkpoint with that prefix "
                        f"(expected {prefix}.index and {prefix}.data-00000-of-00001)")
    return prefix


def _check_size(checkpoint: Checkpoint, what: str) -> None:
    """A download that broke off would otherwise fail deep inside a session."""
    directory, name = os.path.split(checkpoint.path)
    held = sum(os.path.getsize(os.path.join(directory, entry))
               for entry in os.listdir(directory or ".") if entry.startswith(f"{name}.data-"))
    needed = sum(int(np.prod(shape)) * checkpoint.dtypes[variable].size
                 for variable, shape in checkpoint.shapes.items()
                 if checkpoint.dtypes[variable] != tf.string)
    if held < needed:
        raise UserError(f"{what}={checkpoint.path} is cut short: its .data files hold {held:,} "
                        f"bytes of {needed:,}; copy it again")


class InitialValues:
    """Gives a model's new variables their first values: from a checkpoint, else by seed.

    Build the model inside `scope()`. Every variable that the checkpoint has starts
    with its value; every other one draws from its own initializer with a seed made of
    `seed` and its name, so that its value does not depend on the graph around it.
    """

    def __init__(self, checkpoint: Optional[Checkpoint], seed: int):
        self._checkpoint = checkpoint
        self._seed = seed
        self.found: List[str] = []
        self.not_found: List[str] = []

    def scope(self):
        return tf.variable_scope(tf.get_variable_scope(), custom_getter=self._get_variable)

    def unused(self) -> List[str]:
        """Parameters of the checkpoint that the model does not have."""
        if not self._checkpoint:
            return []
        return sorted(set(self._checkpoint.parameters()) - set(self.found))

    def _get_variable(self, getter, name, *args, **kwargs):
        if tf.GraphKeys.LOCAL_VARIABLES in (kwargs.get("collections") or ()):
            return getter(name, *args, **kwargs)  # of no checkpoint; see `frozen`
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
        if name not in names:  # each replica builds the model
            names.append(name)

    def _check_shape(self, name: str, shape: Sequence[int]) -> None:
        wanted, held = tf.TensorShape(shape).as_list(), self._checkpoint.shapes[name]
        if wanted != held:
            raise UserError(f"{self._checkpoint.path}: {name} has the shape {held}, and the model "
                            f"needs {wanted}; checkpoint, --bert_config_file and the task's "
                            "labels must belong together")

    def _seeded(self, initializer, name: str):
        if getattr(initializer, "seed", False) is not None:
            return initializer  # draws nothing, or has a seed of its own
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
    """Operations made within it are not bound to the variable whose initial value they make.

    TensorFlow binds an initializer's operations to its variable. Restoring has no kernel for
    GPUs: soft placement would keep the variable, its slots and its update on the CPU with it.
    """
    nothing = tf.AttrValue(list=tf.AttrValue.ListValue())
    return tf.get_default_graph()._attr_scope({"_class": nothing})


@contextlib.contextmanager
def frozen(checkpoint: Checkpoint, scope: str) -> Iterator[None]:
    """Within it, variables are those of `checkpoint`, beside a model that is trained.

    They are loaded at the start of each session, never trained, and in no checkpoint of the
    training. Their names are the checkpoint's below `scope`.

    Raises:
        UserError: the checkpoint lacks a variable.
    """
    def get_variable(getter, name, *args, **kwargs):
        own_name = name[len(scope) + 1:]
        held = checkpoint.shapes.get(own_name)
        if held != tf.TensorShape(kwargs["shape"]).as_list():
            raise UserError(f"{checkpoint.path} does not belong to its config: {own_name} "
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
            raise UserError(f"{checkpoint.path} does not belong to this model: {name} {state}, "
                            f"and the model needs {shape}; the checkpoint (of --output_dir or "
                            "--init_checkpoint), --bert_config_file and the task must belong "
                            "together")

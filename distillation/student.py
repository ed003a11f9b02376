"""The model that learns from a teacher: what it is, what it starts from, whom it listens to."""

import os
import re
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

import modeling
from distillation.teacher import Teacher
from encoder import variables, vocabulary
from encoder.config import load_config
from engine import checkpoints
from engine.errors import UserError

_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")

# Which layer of the teacher each of the student's learns from; both count from 1.
LayerMap = Tuple[int, ...]


class Student(NamedTuple):
    """A model to be trained. Made by `find`."""
    config: modeling.BertConfig
    checkpoint: Optional[checkpoints.Checkpoint]  # that it starts from


def find(value: str, teacher: Teacher) -> Student:
    """The student that --student means: the folder of a model, or a shape.

    Raises:
        UserError: it is neither, or no student of this teacher.
    """
    if re.fullmatch(r"\d+(,\d+)*", value):
        return Student(_config_of_shape(value, teacher.config), None)
    if not os.path.isdir(value):
        raise UserError(f"--student={value} is neither the folder of a model nor a shape: layers,"
                        "hidden,heads,intermediate, such as 4,312,12,1200")
    config = load_config(os.path.join(value, "bert_config.json"))
    _check_vocabulary(value, teacher)
    return Student(config, checkpoints.open_checkpoint(value, "--student"))


def _config_of_shape(value: str, teacher: modeling.BertConfig) -> modeling.BertConfig:
    sizes = [int(size) for size in value.split(",")]
    if len(sizes) != len(_SHAPE):
        raise UserError(f"--student={value}: a shape is four numbers: layers,hidden,heads,"
                        "intermediate")
    config = modeling.BertConfig.from_dict({**teacher.to_dict(), **dict(zip(_SHAPE, sizes))})
    try:
        modeling.check_config(config)
    except ValueError as error:
        raise UserError(f"--student={value}: {error}") from error
    return config


def _check_vocabulary(folder: str, teacher: Teacher) -> None:
    path = os.path.join(folder, vocabulary.FILE)
    if vocabulary.content_hash(path, "--student: its vocabulary") != teacher.encoding.vocab_hash:
        raise UserError(f"{path} is another vocabulary than the teacher's "
                        f"({teacher.encoding.vocab_file}): the ids of one mean nothing to the "
                        "other; take a student with the teacher's vocabulary, or a shape")


def layer_map(value: Optional[str], student: modeling.BertConfig,
              teacher: modeling.BertConfig) -> LayerMap:
    """The layers that --layer_map names; where it is left out, uniform ones that end at the top.

    Raises:
        UserError: it does not name a layer of the teacher for each of the student's.
    """
    own, others = student.num_hidden_layers, teacher.num_hidden_layers
    if not value:
        if own > others:
            raise UserError(f"the student has {own} layers and the teacher {others}: say with "
                            "--layer_map which of the teacher's each one learns from")
        return tuple((layer + 1) * others // own for layer in range(own))
    layers = value.split(",")
    if len(layers) != own or not all(layer.strip().isdecimal() and 1 <= int(layer) <= others
                                     for layer in layers):
        raise UserError(f"--layer_map={value}: must be {own} numbers, one for each layer of the "
                        f"student, from 1 to {others}, the teacher's layers")
    return tuple(map(int, layers))


def initial_values(student: modeling.BertConfig, teacher: Teacher, layers: LayerMap, *,
                 with_head: bool) -> Optional[checkpoints.Checkpoint]:
    """What a student of this shape can take over from its teacher, as a checkpoint.

    Each variable of the same shape: embeddings and pooler, and those of the layer of the teacher
    that a layer learns from. None where the hidden sizes differ: nothing of use is left then.

    Args:
        with_head: the classifier's head, too.
    """
    if student.hidden_size != teacher.config.hidden_size:
        return None
    table = variables.correspondence(
        student.to_dict(), teacher.kind.num_outputs if with_head else None)
    parts = [variables.ENCODER, variables.POOLER]
    if with_head:
        parts.append(variables.CLASSIFIER)
    names: Dict[str, str] = {}
    for row in (row for part in parts for row in table[part]):
        name = _in_teacher(row.tensorflow, layers)
        if teacher.checkpoint.shapes.get(name) == list(row.shape):
            names[row.tensorflow] = name
    return teacher.checkpoint.renamed(names)


def _in_teacher(name: str, layers: Sequence[int]) -> str:
    return re.sub(r"/layer_(\d+)/", lambda found: f"/layer_{layers[int(found.group(1))] - 1}/",
                  name)

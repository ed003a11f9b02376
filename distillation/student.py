"""The student: its config, its initial values and the teacher's layers that it learns from."""

import os
import re
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

import modeling
from distillation.teacher import Teacher
from encoder import model_files, variables, vocabulary
from engine.checkpoints import checkpoints
from engine.errors import UserError

_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")

# For each layer of the student, the teacher's layer (from 1) that it learns from.
LayerMap = Tuple[int, ...]


class Student(NamedTuple):
    """A model to be trained. Made by `find`."""
    config: modeling.BertConfig
    checkpoint: Optional[checkpoints.Checkpoint]  # its initial values; None for a new shape


def find(value: str, teacher: Teacher) -> Student:
    """The student that --student gives: the folder of a model, or a shape.

    Raises:
        UserError: it is neither, or has another vocabulary than the teacher.
    """
    if re.fullmatch(r"\d+(,\d+)*", value):
        return Student(_config_of_shape(value, teacher.config), None)
    if not os.path.isdir(value):
        raise UserError(f"--student={value} is neither the folder of a model nor a shape: layers,"
                        "hidden,heads,intermediate, such as 4,312,12,1200")
    model = model_files.open_model(value, "--student")
    _check_vocabulary(model.file(vocabulary.FILE), teacher)
    return Student(model.config(), model.checkpoint)


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


def _check_vocabulary(path: str, teacher: Teacher) -> None:
    if vocabulary.content_hash(path, "--student: its vocabulary") != teacher.encoding.vocab_hash:
        raise UserError(f"{path} is another vocabulary than the teacher's "
                        f"({teacher.encoding.vocab_file}): the ids of one mean nothing to the "
                        "other; take a student with the teacher's vocabulary, or a shape")


def layer_map(value: Optional[str], student: modeling.BertConfig,
              teacher: modeling.BertConfig) -> LayerMap:
    """The layer map that --layer_map gives; by default uniform, ending at the teacher's top layer.

    Raises:
        UserError: the value does not have one of the teacher's layers per layer of the student.
    """
    student_layers, teacher_layers = student.num_hidden_layers, teacher.num_hidden_layers
    if not value:
        if student_layers > teacher_layers:
            raise UserError(f"the student has {student_layers} layers and the teacher only "
                            f"{teacher_layers}: set --layer_map to the teacher's layers that "
                            "they learn from")
        return tuple((layer + 1) * teacher_layers // student_layers
                     for layer in range(student_layers))
    layers = value.split(",")
    if len(layers) != student_layers or not all(
            layer.strip().isdecimal() and 1 <= int(layer) <= teacher_layers for layer in layers):
        raise UserError(f"--layer_map={value}: must be {student_layers} numbers from 1 to "
                        f"{teacher_layers}: a layer of the teacher for each layer of the student")
    return tuple(map(int, layers))


def initial_values(student: modeling.BertConfig, teacher: Teacher, layers: LayerMap, *,
                 with_head: bool) -> Optional[checkpoints.Checkpoint]:
    """The teacher's values for a student of this shape, as a checkpoint of the student's variables.

    It has the variables of the same shape: embeddings, pooler, and, for each layer, those of the
    teacher's layer that it learns from. None if the hidden sizes differ, as little would be left.

    Args:
        with_head: whether to include the classification layer.
    """
    if student.hidden_size != teacher.config.hidden_size:
        return None
    table = variables.correspondence(
        student.to_dict(), teacher.own.kind.num_outputs if with_head else None)
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

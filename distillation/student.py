"""The student: its config, its initial values and the teacher's layers that it learns from."""

import os
import re
from typing import List, NamedTuple, Optional

import modeling
from distillation.teacher import Teacher
from encoder import model_files, variables, vocabulary
from engine.checkpoints import checkpoints
from engine.errors import UserError

_SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


class Student(NamedTuple):
    """A model to be trained. Made by `find`."""
    config: modeling.BertConfig
    checkpoint: Optional[checkpoints.Checkpoint]  # its initial values; None for a new shape


def find(value: str, teacher: Teacher) -> Student:
    """The student that --student gives: the folder of a model, or a shape."""
    if re.fullmatch(r"\d+(,\d+)*", value):
        return Student(_config_of_shape(value, teacher.config), None)
    if not os.path.isdir(value):
        raise UserError(f"--student={value} is neither the folder of a model nor a shape: layers,"
                        "hidden,heads,intermediate, such as 4,312,12,1200")
    trained = model_files.open_folder(value, "--student")
    path, encoding = trained.file(vocabulary.FILE), teacher.encoding
    if vocabulary.content_hash(path, "--student: its vocabulary") != encoding.vocab_hash:
        raise UserError(f"{path} is another vocabulary than the teacher's ({encoding.vocab_file}): "
                        "the ids of one mean nothing to the other; take a student with the "
                        "teacher's vocabulary, or a shape")
    config = trained.config()
    model_files.check_encoder(trained.checkpoint, config, trained.flag)
    return Student(config, trained.checkpoint)


def _config_of_shape(value: str, teacher: modeling.BertConfig) -> modeling.BertConfig:
    sizes = [int(size) for size in value.split(",")]
    if len(sizes) != len(_SHAPE):
        raise UserError(f"--student={value}: a shape is four numbers: layers,hidden,heads,"
                        "intermediate")
    return model_files.checked_config({**teacher.to_dict(), **dict(zip(_SHAPE, sizes))}, f"--student={value}")


def learned_layers(student: modeling.BertConfig, teacher: modeling.BertConfig) -> List[int]:
    """For each layer of the student, the teacher's layer (from 1) that it learns from.

    They are spread evenly, up to the teacher's top layer.
    """
    count, others = student.num_hidden_layers, teacher.num_hidden_layers
    if count > others:
        raise UserError(f"--student has {count} layers and --teacher only {others} to learn from: "
                        "give the student as many or fewer")
    return [(layer + 1) * others // count for layer in range(count)]


def initial_values(student: modeling.BertConfig, teacher: Teacher, *,
                   with_head: bool) -> Optional[checkpoints.Checkpoint]:
    """The teacher's values for a student of this shape, as a checkpoint of the student's variables.

    It has the variables of the same shape: embeddings, pooler, and, for each layer, those of the
    teacher's layer that it learns from. None if the hidden sizes differ, as little would be left.

    Args:
        with_head: whether to include the classification layer, if the teacher has one.
    """
    layers = learned_layers(student, teacher.config)
    outputs = teacher.model.num_outputs() if with_head else None
    if student.hidden_size != teacher.config.hidden_size:
        return None
    table = variables.correspondence(student.to_dict(), {variables.CLASSIFIER: outputs} if outputs else {})
    parts = [variables.ENCODER, variables.POOLER] + [variables.CLASSIFIER] * bool(outputs)
    shapes = {row.tensorflow: list(row.shape) for part in parts for row in table[part]}
    names = {name: re.sub(r"/layer_(\d+)/", lambda match: (
        f"/layer_{layers[int(match.group(1))] - 1}/"), name) for name in shapes}
    return teacher.checkpoint.renamed({
        name: taught for name, taught in names.items()
        if teacher.checkpoint.shapes.get(taught) == shapes[name]})

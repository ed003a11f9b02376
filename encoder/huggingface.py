"""Reads a Hugging Face folder: its config, its weights under BERT's names, its classifier's head.

Only models of BERT's shape are read; any other is refused by its name, with the reason. No pickle
is ever loaded.
"""

import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import safetensors

from engine.disk import files
from engine.errors import UserError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_INDEX = f"{WEIGHTS}.index.json"  # of weights that are divided among several files
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

# Models whose tensors are named and shaped like BERT's; the names of some begin with the type.
_TYPES = ("bert", "ernie")
_RELATIVE = "its attention depends on relative positions"
_BYTE_PAIRS = "its vocabulary is not WordPiece, and its positions begin at 2"
# Type of another model → what keeps its weights out of a BERT.
_OTHER_TYPES = {
    "albert": "its layers share their weights, and its embeddings are narrower than its layers",
    "big_bird": "its attention is sparse, and its vocabulary is not WordPiece",
    "camembert": _BYTE_PAIRS,
    "convbert": "a part of its attention is convolutions",
    "deberta": _RELATIVE,
    "deberta-v2": _RELATIVE,
    "distilbert": "it has neither segments nor a pooler",
    "electra": "it has no pooler, and its embeddings may be narrower than its layers",
    "longformer": "its attention is sparse, and its vocabulary is not WordPiece",
    "megatron-bert": "its layers normalize their inputs, not their outputs",
    "mobilebert": "its layers have bottlenecks",
    "modernbert": "its positions are rotations, and its layers are gated",
    "mpnet": _RELATIVE,
    "nezha": _RELATIVE,
    "roberta": _BYTE_PAIRS,
    "roformer": "its positions are rotations",
    "xlm-roberta": _BYTE_PAIRS,
    "xlnet": _RELATIVE,
}

# The masked-LM head shares these; some files hold them twice.
_TIED = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
         "cls.predictions.decoder.bias": "cls.predictions.bias"}
# Tensors that transformers' BERT does not read either.
_UNREAD = (".position_ids", ".task_type_embeddings.weight")
_PRETRAINING_HEADS = ("cls.predictions.", "cls.seq_relationship.")
_HEAD = "classifier"  # transformers' name of the layer

# transformers' classes: those of a classifier of texts, and all that have another head or none.
_CLASSIFIER_CLASS = re.compile(r"\w*ForSequenceClassification")
_OTHER_CLASS = re.compile(r"(Bert|Ernie)(For\w+|Model)")


class Weights(NamedTuple):
    """The tensors of a model. Made by `open_weights`."""
    path: str  # for messages
    shapes: Dict[str, Tuple[int, ...]]
    read: Callable[[str], np.ndarray]  # name → float32


def check_type(config: Mapping[str, Any], path: str, names: Iterable[str] = ()) -> None:
    """Raises a UserError unless the model is a plain BERT.

    Args:
        config: the content of config.json.
        path: its path.
        names: those of the weights, of which a config may say nothing.
    """
    model_type = str(config.get("model_type") or "bert")  # it could be anything
    found = [model_type, *(name.split(".")[0] for name in names)]
    other = next((name for name in found if name in _OTHER_TYPES), None)
    if other:
        raise UserError(f"{path}: model_type is {other!r}: {_OTHER_TYPES[other]}; only BERT's "
                        "own encoder can be converted")
    if model_type not in _TYPES:
        raise UserError(f"{path}: model_type is {config['model_type']!r}; only BERT encoders "
                        "(model_type 'bert') can be converted")
    for key, plain in (("position_embedding_type", "absolute"), ("is_decoder", False),
                       ("use_task_id", False)):  # the last one is ERNIE's
        if config.get(key, plain) != plain:
            raise UserError(f"{path}: {key} is {config[key]!r}; only BERT encoders "
                            f"({key} {plain!r}) can be converted")


def open_weights(folder: str) -> Weights:
    """The tensors of a folder's safetensors files, under the names of transformers' BERT.

    Raises:
        UserError: a file is missing or damaged.
    """
    path, stored = os.path.join(folder, WEIGHTS), {}
    for file in _weight_files(folder):
        try:
            opened = safetensors.safe_open(file, "np")
        except safetensors.SafetensorError as error:
            raise UserError(f"{file} is truncated or not a safetensors file: {error}") from error
        stored.update({_current_name(name): (opened, name) for name in opened.keys()})

    def read(name: str) -> np.ndarray:
        file, its_name = stored[name]
        dtype = file.get_slice(its_name).get_dtype()
        if dtype not in ("F16", "F32", "F64"):
            raise UserError(f"{path}: {name} is of type {dtype}; save the weights as F32 or F16")
        return file.get_tensor(its_name).astype(np.float32)

    copies = [name for name, original in _TIED.items()
              if name in stored and original in stored
              and np.array_equal(read(name), read(original))]
    shapes = {name: tuple(file.get_slice(its_name).get_shape())
              for name, (file, its_name) in stored.items()
              if name not in copies and not name.endswith(_UNREAD)}
    return Weights(path, shapes, read)


def _weight_files(folder: str) -> List[str]:
    """The single file of the weights, or all that the index names."""
    path, index = os.path.join(folder, WEIGHTS), os.path.join(folder, _INDEX)
    if not os.path.exists(path) and os.path.exists(index):
        return _shards(folder, index)
    if not os.path.exists(path):
        _refuse_pickles(folder)
    return [files.require_file(path, "weights")]


def _shards(folder: str, index: str) -> List[str]:
    content = files.read_json(index, "index of weights")
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not names or any(
            os.path.basename(str(name)) != name for name in names.values()):
        raise UserError(f"{index} has no weight_map from tensors to files of its folder")
    return [files.require_file(os.path.join(folder, name), f"weights that {index} names:")
            for name in sorted(set(names.values()))]


def _refuse_pickles(folder: str) -> None:
    for path in (os.path.join(folder, name) for name in _PICKLES):
        if os.path.exists(path):
            raise UserError(
                f"{path} is a pickle, which can run any code and is not loaded here; if you "
                f"trust it, transformers converts it to {WEIGHTS}: "
                "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(NEW_DIR)")


def _current_name(name: str) -> str:
    """A tensor's name in BERT today.

    Bare encoders lack the prefix, ERNIE's has its own, and old files have gamma and beta.
    """
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = "bert." + name
    elif name.startswith("ernie."):
        name = "bert." + name[len("ernie."):]
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias")


def with_classifier(weights: Weights, config: Mapping[str, Any]) -> Tuple[Weights, Optional[int]]:
    """The weights with the classifier's layer under BERT's name, and the number of its outputs.

    The classes in `config` say whether there is one, or else the tensors do. The number is None
    if the model is no classifier of texts.

    Raises:
        UserError: its head is not one linear layer on the pooled output.
    """
    others = sorted(name for name in weights.shapes
                    if not name.startswith(("bert.", *_PRETRAINING_HEADS)))
    is_classifier = _says_classifier(config)
    if is_classifier is False or is_classifier is None and not others:
        return weights, None
    scope = _linear_layer(weights, others, is_stated=bool(is_classifier))
    if scope:
        return _renamed(weights, scope), weights.shapes[f"{scope}.weight"][0]
    if is_classifier or "id2label" in config or "problem_type" in config:
        raise UserError(
            f"{weights.path}: the classifier's head ({', '.join(others[:4]) or 'none'}) is not one "
            "linear layer on the output of BERT's pooler; to convert the encoder alone, set "
            f'"architectures": ["BertModel"] in its {CONFIG}')
    return weights, None


def _linear_layer(weights: Weights, names: List[str], *, is_stated: bool) -> Optional[str]:
    """The scope of the linear layer on the pooled output that is all of these tensors, if so."""
    scope = names[0].rpartition(".")[0] if names else ""
    allowed = {f"{scope}.weight", f"{scope}.bias"}
    is_layer = f"{scope}.weight" in names and set(names) <= allowed
    if scope == _HEAD and not is_stated:  # BERT's own layer always has a bias
        is_layer = set(names) == allowed
    is_layer = is_layer and len(weights.shapes[f"{scope}.weight"]) == 2
    return scope if is_layer and "bert.pooler.dense.weight" in weights.shapes else None


def _says_classifier(config: Mapping[str, Any]) -> Optional[bool]:
    """Whether the names of its classes say that the model classifies texts; None: they do not."""
    names = config.get("architectures")
    classes = [str(name) for name in names] if isinstance(names, list) else []
    if any(map(_CLASSIFIER_CLASS.fullmatch, classes)):
        return True
    return False if any(map(_OTHER_CLASS.fullmatch, classes)) else None


def _renamed(weights: Weights, scope: str) -> Weights:
    """The weights with the layer of this scope as `classifier`; a missing bias is zero."""
    if scope == _HEAD:
        return weights
    names = {f"{_HEAD}.{part}": f"{scope}.{part}" for part in ("weight", "bias")}
    shapes = {name: shape for name, shape in weights.shapes.items() if name not in names.values()}
    shape = weights.shapes[names[f"{_HEAD}.weight"]]

    def read(name: str) -> np.ndarray:
        theirs = names.get(name, name)
        if theirs in weights.shapes:
            return weights.read(theirs)
        return np.zeros(shape[:1], np.float32)

    return Weights(weights.path, {**shapes, f"{_HEAD}.weight": shape, f"{_HEAD}.bias": shape[:1]},
                   read)

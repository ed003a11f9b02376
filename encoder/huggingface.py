"""Reads a Hugging Face folder: its config, and its weights under the names of transformers' BERT.

Only models of BERT's shape are read. No pickle is ever loaded.
"""

import json
import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import safetensors

from encoder import tokenizer_files
from engine.disk import files
from engine.errors import UserError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_PICKLE = "pytorch_model.bin"
_HEADER_BYTES = 1 << 20  # some 10,000 tensors

# Models whose tensors are named and shaped like BERT's; the names of some begin with the type.
_TYPES = ("bert", "ernie")

# The masked-LM head shares these; some files hold them twice.
_TIED = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
         "cls.predictions.decoder.bias": "cls.predictions.bias"}
# Tensors that transformers' BERT does not read either.
_UNREAD = (".position_ids", ".task_type_embeddings.weight")


class Weights(NamedTuple):
    """The tensors of a model. Made by `open_weights`."""
    path: str  # for messages
    shapes: Dict[str, Tuple[int, ...]]
    read: Callable[[str], np.ndarray]  # name → float32


def check_type(config: Mapping[str, Any], path: str) -> None:
    """Raises a UserError unless the config.json in `path` is that of a plain BERT."""
    model_type = config.get("model_type") or "bert"
    if model_type not in _TYPES:
        raise UserError(f"{path}: model_type is {model_type!r}; only models of BERT's own shape "
                        f"({', '.join(_TYPES)}) can be converted")
    if config.get("tokenizer_class") not in tokenizer_files.CLASSES:
        raise UserError(f"{path}: tokenizer_class is {config['tokenizer_class']!r}, and only the tokenizer of BERT "
                        "itself (BertTokenizer) is computed here")
    for key, plain in (("position_embedding_type", "absolute"), ("is_decoder", False),
                       ("use_task_id", False)):  # the last one is ERNIE's
        if config.get(key, plain) != plain:
            raise UserError(f"{path}: {key} is {config[key]!r}; only BERT encoders "
                            f"({key} {plain!r}) can be converted")


def open_weights(folder: str) -> Weights:
    """The tensors of a folder's safetensors file, under the names of transformers' BERT."""
    path, pickle = os.path.join(folder, WEIGHTS), os.path.join(folder, _PICKLE)
    if os.path.exists(pickle) and not os.path.exists(path):
        raise UserError(f"{pickle} is a pickle, which can run any code and is not loaded here; if "
                        f"you trust it, transformers converts it to {WEIGHTS}: "
                        "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(NEW_DIR)")
    with files.open_regular(path, "weights") as file:
        header = file.read(min(int.from_bytes(file.read(8), "little"), _HEADER_BYTES + 1))
    if len(header) > _HEADER_BYTES:
        raise UserError(f"{path} describes its tensors in over {_HEADER_BYTES:,} bytes: they are "
                        "no BERT's")
    try:
        file = safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is truncated or not a safetensors file: {error}") from error
    tensors = json.loads(header)  # the package takes as long to look up one as to read all
    names = {_current_name(name): name for name in file.keys()}

    def read(name: str) -> np.ndarray:
        dtype = tensors[names[name]]["dtype"]
        if dtype not in ("F16", "F32", "F64"):
            raise UserError(f"{path}: {name} is of type {dtype}; save the weights as F32 or F16")
        return file.get_tensor(names[name]).astype(np.float32)

    copies = [name for name, original in _TIED.items() if name in names and original in names
              and np.array_equal(read(name), read(original))]
    return Weights(path, {
        name: tuple(tensors[its_name]["shape"]) for name, its_name in names.items()
        if name not in copies and not name.endswith(_UNREAD)}, read)


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


def num_outputs(weights: Weights, config: Mapping[str, Any]) -> Optional[int]:
    """The number of a classifier's outputs; None if the model is no classifier of texts.

    Heads for other tasks have layers of the same name: the class in the config tells them apart.
    """
    is_classifier = "ForSequenceClassification" in str(
        config.get("architectures") or "BertForSequenceClassification")
    shape = weights.shapes.get("classifier.weight")
    return shape[0] if is_classifier and shape else None

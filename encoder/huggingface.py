"""Reads a Hugging Face folder: its config, and its weights under the names of transformers' BERT.

Only models whose encoder is a BERT are read. No pickle is ever loaded.
"""

import json
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import safetensors

from encoder import tokenizer_files, variables
from engine.disk import files
from engine.errors import UserError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"  # of a model in several files
_PICKLE = "pytorch_model.bin"
_HEADER_BYTES = 1 << 20  # some 10,000 tensors

# The types of tensors that are read → how NumPy reads them; bfloat16 is the upper half of float32.
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}

# The masked-LM head shares these; some files hold them twice.
_TIED = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
         "cls.predictions.decoder.bias": "cls.predictions.bias"}
# Tensors that transformers' BERT does not read either.
_UNREAD = (".position_ids", ".task_type_embeddings.weight")


class _Tensor(NamedTuple):
    """Where a tensor is."""
    path: str
    dtype: str
    shape: Tuple[int, ...]
    start: int  # bytes

    def read(self, name: str) -> np.ndarray:
        """The values, in float32."""
        if self.dtype not in _TYPES:
            raise UserError(f"{self.path}: {name} is of type {self.dtype}; save the weights as F32, F16 or BF16")
        dtype = np.dtype(_TYPES[self.dtype])
        with files.open_regular(self.path, "weights") as file:
            file.seek(self.start)
            values = np.frombuffer(file.read(int(np.prod(self.shape)) * dtype.itemsize), dtype)
        if self.dtype == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        return values.reshape(self.shape).astype(np.float32)


class Weights(NamedTuple):
    """The tensors of a model. Made by `open_weights`."""
    path: str  # for messages
    shapes: Dict[str, Tuple[int, ...]]
    read: Callable[[str], np.ndarray]  # name → float32


def check_type(config: Mapping[str, Any], path: str) -> variables.Naming:
    """The names of a config.json's type of model; raises a UserError unless its encoder is a BERT."""
    model_type = config.get("model_type") or "bert"
    if not isinstance(model_type, str) or model_type not in variables.TYPES:
        raise UserError(f"{path}: model_type is {model_type!r}; only models of BERT's own shape "
                        f"({', '.join(variables.TYPES)}) can be converted")
    if config.get("tokenizer_class") not in tokenizer_files.CLASSES:
        raise UserError(f"{path}: tokenizer_class is {config['tokenizer_class']!r}, and only the tokenizer of BERT "
                        "itself (BertTokenizer) is computed here")
    for key, plain in (("position_embedding_type", "absolute"), ("is_decoder", False),
                       ("use_task_id", False)):  # the last one is ERNIE's
        if config.get(key, plain) != plain:
            raise UserError(f"{path}: {key} is {config[key]!r}; only BERT encoders "
                            f"({key} {plain!r}) can be converted")
    return variables.TYPES[model_type]


def open_weights(folder: str, naming: variables.Naming) -> Weights:
    """The tensors of a folder's safetensors files, under the names of transformers' BERT."""
    path, paths = _paths(folder)
    tensors = {_current_name(name, naming): tensor
               for part in paths for name, tensor in _tensors_of(part).items()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if not naming.has_segments:
        hidden_size = shapes.get("bert.embeddings.LayerNorm.weight", ())
        shapes["bert.embeddings.token_type_embeddings.weight"] = (variables.SEGMENTS, *hidden_size)

    def read(name: str) -> np.ndarray:
        return tensors[name].read(name) if name in tensors else np.zeros(shapes[name], np.float32)

    copies = [name for name, original in _TIED.items() if name in shapes and original in shapes
              and np.array_equal(read(name), read(original))]
    return Weights(path, {name: shape for name, shape in shapes.items()
                          if name not in copies and not name.endswith(_UNREAD)}, read)


def _paths(folder: str) -> Tuple[str, List[str]]:
    """The file that names all tensors, and those that hold them."""
    path, index = os.path.join(folder, WEIGHTS), os.path.join(folder, INDEX)
    if os.path.exists(path):
        return path, [path]
    if os.path.exists(index):
        names = files.read_record(index, "list of weights", {"weight_map": dict})["weight_map"].values()
        names = sorted({os.path.basename(str(name)) for name in names})
        missing = [name for name in names if not os.path.exists(os.path.join(folder, name))]
        if missing:
            raise UserError(f"{index} names {len(names)} files, and {', '.join(missing[:3])} "
                            f"{'is' if len(missing) == 1 else 'are'} missing: copy all of them")
        return index, [os.path.join(folder, name) for name in names]
    pickle = os.path.join(folder, _PICKLE)
    if os.path.exists(pickle) or os.path.exists(f"{pickle}.index.json"):
        raise UserError(f"{pickle} is a pickle, which can run any code and is not loaded here; if "
                        f"you trust it, transformers converts it to {WEIGHTS}: "
                        "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(NEW_DIR)")
    return path, [path]


def _tensors_of(path: str) -> Dict[str, _Tensor]:
    """The tensors of a safetensors file, by their names in it."""
    with files.open_regular(path, "weights") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(min(size, _HEADER_BYTES + 1))
    if len(header) > _HEADER_BYTES:
        raise UserError(f"{path} describes its tensors in over {_HEADER_BYTES:,} bytes: they are "
                        "no BERT's")
    try:
        safetensors.safe_open(path, "np")  # checks the header against the file
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is truncated or not a safetensors file: {error}") from error
    entries = json.loads(header)
    entries.pop("__metadata__", None)
    return {name: _Tensor(path, entry["dtype"], tuple(entry["shape"]), 8 + size + entry["data_offsets"][0])
            for name, entry in entries.items()}


def _current_name(name: str, naming: variables.Naming) -> str:
    """A tensor's name in BERT today.

    Bare encoders lack the prefix, other types have their own, and old files have gamma and beta.
    """
    for part, its_name in naming.tensors.items():
        name = name.replace(part, its_name)
    if name.startswith(("embeddings", "encoder.", "pooler.")):
        name = "bert." + name
    elif name.startswith(naming.prefix):
        name = "bert." + name[len(naming.prefix):]
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias")


def head_of(weights: Weights, config: Mapping[str, Any]) -> Optional[str]:
    """Which of `variables.HEADS` a model has; None for no one.

    Heads for other tasks have layers of the same name: the class in the config tells them apart.
    """
    classes = config.get("architectures") or (
        "BertForSequenceClassification" if "classifier.weight" in weights.shapes else "BertModel")
    return next((head for head, ending in variables.HEADS.items() if ending in str(classes)), None)

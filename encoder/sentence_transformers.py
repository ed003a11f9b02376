"""The files with which a Hugging Face folder of sentence-transformers says how texts get vectors.

modules.json names the steps: an encoder, a pooling of its states, and mostly a division by the
vector's length. Here vectors always have the length 1.
"""

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from encoder import task_json, tokenizer_files
from engine import log
from engine.disk import files
from engine.errors import UserError

MODULES = "modules.json"
_SETTINGS = "config_sentence_transformers.json"
_ENCODER_SETTINGS = "sentence_bert_config.json"
_OLD_ENCODER_SETTINGS = "sentence_distilbert_config.json"  # of version 0
_ENCODER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens",
          "max": "pooling_mode_max_tokens"}  # of versions before 6, which version 6 reads, too
_OLD_MODE = "pooling_mode_"


class Sentences(NamedTuple):
    """The settings of a folder of sentence-transformers."""
    encoder_folder: str  # of the encoder's own files
    description: Dict[str, Any]  # entries of task.json
    max_seq_length: Optional[int]  # None: as the tokenizer says
    warnings: List[str]


def read(folder: str) -> Optional[Sentences]:
    """Reads the files of a Hugging Face folder; None if it is not sentence-transformers'."""
    if not os.path.exists(os.path.join(folder, MODULES)):
        return None
    modules = _modules(folder)
    encoder = os.path.join(folder, modules[_ENCODER])
    record = _record(os.path.join(encoder, _ENCODER_SETTINGS)) or _record(os.path.join(encoder, _OLD_ENCODER_SETTINGS))
    pooling = os.path.join(folder, modules[_POOLING], "config.json")
    settings = _record(os.path.join(folder, _SETTINGS))
    prompts = settings.get("prompts") or {}
    prefix = prompts.get("query", "") if isinstance(prompts, dict) else None
    length = record.get("max_seq_length")
    if not isinstance(prefix, str) or length is not None and not (
            type(length) is int and length >= 3):
        raise UserError(f"{folder}: {_SETTINGS} or {_ENCODER_SETTINGS} is damaged: the prompt of "
                        f"queries is {str(prefix)[:40]}, max_seq_length {str(length)[:40]}")
    ignored = {name: text for name, text in prompts.items() if name != "query" and text}
    always = settings.get("default_prompt_name")
    if always and prompts.get(always):
        raise UserError(f"{folder}: {_SETTINGS}: default_prompt_name is {log.brief(repr(always))}, so that every text begins "
                        f"with {log.brief(repr(prompts[always]))} there, which is not computed here; if the texts that you "
                        "give will begin with it, set default_prompt_name to null")
    warnings = [*(f"{folder}: texts of the kind {log.visible(str(name))} begin with "
                  f"{str(text)!r:.60} there; here you put it before them"
                  for name, text in ignored.items()),
                *([] if _NORMALIZE in modules else [
                    f"{folder}: vectors keep their lengths there, here all have the length 1"])]
    if record.get("do_lower_case") and tokenizer_files.read(encoder)["do_lower_case"] is False:
        raise UserError(f"{folder}: {_ENCODER_SETTINGS} lower-cases texts before the tokenizer, which does not: "
                        "here the tokenizer alone decides, so that texts would get other ids")
    return Sentences(
        encoder,
        task_json.of_vectors(_read_pooling(pooling), prefix, matryoshka=()), length, warnings)


def _modules(folder: str) -> Dict[str, str]:
    """The folder of each module, "" for `folder` itself, by the name of its class."""
    path = os.path.join(folder, MODULES)
    modules = files.read_json(path, "list of modules")
    try:
        parts = [(str(module["type"]).split(".")[-1], module["path"]) for module in modules]
    except (TypeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is damaged: it is no list of modules, each with type and "
                        "path") from error
    names = [name for name, _ in parts]
    if names not in ([_ENCODER, _POOLING], [_ENCODER, _POOLING, _NORMALIZE]):
        raise UserError(f"{path} has the modules {', '.join(names)[:200]}; can be converted: "
                        f"{_ENCODER}, {_POOLING}, and {_NORMALIZE} or no more")
    for _, name in parts:
        if not isinstance(name, str) or name != os.path.basename(name) or name == os.pardir:
            raise UserError(f"{path} is damaged: {str(name)[:40]!r} is no folder beside it")
    return dict(parts)


def _read_pooling(path: str) -> str:
    config = files.read_record(path, "pooling configuration", {})
    mode = config.get("pooling_mode", [
        next((ours for ours, theirs in _MODES.items() if theirs == name), name)
        for name, is_used in config.items() if name.startswith(_OLD_MODE) and is_used])
    modes = [mode] if isinstance(mode, str) else mode
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in _MODES:
        raise UserError(f"{path}: the pooling is {str(mode)[:80]}; can be converted: one of "
                        f"{', '.join(_MODES)}")
    if config.get("include_prompt") is False:
        raise UserError(f"{path}: include_prompt is false; here the prefix of queries is pooled "
                        "like the rest of the text")
    return modes[0]


def _record(path: str) -> Dict[str, Any]:
    return files.read_record(path, "settings", {}) if os.path.exists(path) else {}


def write(folder: str, description: Mapping[str, Any], hidden_size: int) -> None:
    """Writes the files beside those of the encoder.

    Args:
        description: the content of task.json.
    """
    prefix = description["query_prefix"]
    modules = {_ENCODER: "", _POOLING: f"1_{_POOLING}", _NORMALIZE: f"2_{_NORMALIZE}"}
    files.write_json(os.path.join(folder, MODULES), [
        {"idx": index, "name": str(index), "path": path,
         "type": f"sentence_transformers.models.{name}"}
        for index, (name, path) in enumerate(modules.items())])
    for path in filter(None, modules.values()):
        os.mkdir(os.path.join(folder, path))
    files.write_json(os.path.join(folder, modules[_POOLING], "config.json"), {
        "word_embedding_dimension": hidden_size,
        **{theirs: ours == description["pooling"] for ours, theirs in _MODES.items()}})
    files.write_json(os.path.join(folder, modules[_NORMALIZE], "config.json"), {})
    files.write_json(os.path.join(folder, _ENCODER_SETTINGS), {
        "max_seq_length": description["max_seq_length"], "do_lower_case": False})
    files.write_json(os.path.join(folder, _SETTINGS), {
        "prompts": {"query": prefix, "document": ""}, "default_prompt_name": None,
        "similarity_fn_name": "cosine"})

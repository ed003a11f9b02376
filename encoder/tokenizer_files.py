"""Whether the files of a Hugging Face folder describe a tokenizer that gives the ids of ours.

Ours is BERT's: it cleans and splits a text, lower-cases it and drops accents, or does neither, and cuts
words into WordPieces. What the files ask for beyond that is refused by its name.
"""

import os
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from engine import log
from engine.disk import files
from engine.errors import UserError

CONFIG = "tokenizer_config.json"  # has do_lower_case, model_max_length
FAST = "tokenizer.json"  # of the package tokenizers; newer folders have it instead of vocab.txt
_ADDED, _SPECIAL = "added_tokens.json", "special_tokens_map.json"
_OF_OTHERS = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "merges.txt", "bpe.codes")

# The classes of transformers that give texts BERT's ids; the last two leave all to FAST.
CLASSES = (None, *(f"{name}Tokenizer{fast}" for fast in ("", "Fast") for name in (
    "Bert", "ConvBert", "DistilBert", "Electra", "Ernie", "MobileBert", "RetriBert", "SqueezeBert",
    "PreTrained")), "TokenizersBackend")
_TOKENS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
           "mask_token": "[MASK]"}
_SINGLE = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
           {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
_SECOND = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
# Entries of the files → the values that change nothing; what is missing has the first.
_PLAIN: Mapping[str, Mapping[str, Sequence[Any]]] = {
    CONFIG: {
        "tokenizer_class": CLASSES, "tokenize_chinese_chars": (True, None), "auto_map": (None, {}),
        "do_basic_tokenize": (True, None), "never_split": (None, [], list(_TOKENS.values())),
        "word_tokenizer_type": (None, "basic"), "subword_tokenizer_type": (None, "wordpiece"),
        **{name: (token, None) for name, token in _TOKENS.items()}},
    FAST: {
        "model.type": ("WordPiece",), "model.merges": (None,), "model.unk_token": ("[UNK]",),
        "model.continuing_subword_prefix": ("##",),
        "model.max_input_chars_per_word": range(100, 1 << 31),  # longer words are rare
        "normalizer.type": ("BertNormalizer",), "normalizer.clean_text": (True,),
        "normalizer.handle_chinese_chars": (True,), "pre_tokenizer.type": ("BertPreTokenizer",),
        "post_processor.type": ("TemplateProcessing", "BertProcessing"),
        "post_processor.single": (_SINGLE,), "post_processor.pair": (_SINGLE + _SECOND,)}}


def read(folder: str, default: Optional[bool] = None) -> Dict[str, Any]:
    """The content of CONFIG, with `do_lower_case` as any file says, or else the default.

    Raises:
        UserError: the tokenizer gives some texts other ids than ours.
    """
    config, fast = _record(folder, CONFIG), _record(folder, FAST)
    lower = config.get("do_lower_case")
    lower = _value(fast, "normalizer.lowercase", default) if lower is None else lower
    if lower not in (None, True, False):
        raise UserError(f"tokenizer configuration {os.path.join(folder, CONFIG)} is damaged: do_lower_case is "
                        f"{log.brief(lower)}")
    for name, what in (*_differences(config, fast, lower), *_added(folder, config, fast)):
        raise UserError(f"{os.path.join(folder, name)}: {what}: this tokenizer gives texts other ids than that "
                        "of BERT itself (BertTokenizer), the only one that is computed here")
    return {**config, "do_lower_case": lower}


def fast(ids: Mapping[str, int], do_lower_case: bool) -> Dict[str, Any]:
    """The content of FAST that gives the ids of ours, for programs that read no vocab.txt."""
    special = {name: ids[name] for name in _TOKENS.values() if name in ids}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": row, "content": name, **flags}
                         for name, row in sorted(special.items(), key=lambda item: item[1])],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": do_lower_case},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": _SINGLE, "pair": _SINGLE + _SECOND, "special_tokens": {
                name: {"id": name, "ids": [special[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 200, "vocab": dict(ids)}}


def _record(folder: str, name: str) -> Dict[str, Any]:
    path = os.path.join(folder, name)
    return files.read_record(path, "tokenizer configuration", {}) if os.path.exists(path) else {}


def _value(entry: Any, key: str, default: Any) -> Any:
    """An entry by the names of the entries that it is in; of a sequence with one part, that part's."""
    for name in key.split("."):
        if isinstance(entry, dict) and entry.get("type") == "Sequence":
            parts = next((value for value in entry.values() if isinstance(value, list)), [])
            entry = parts[0] if len(parts) == 1 else entry
        if entry is None:
            return None
        if not isinstance(entry, dict) or name not in entry:
            return default
        entry = entry[name]
    return entry.get("content", entry) if isinstance(entry, dict) else entry  # of a token


def _differences(config: Mapping[str, Any], fast: Mapping[str, Any],
                 lower: Optional[bool]) -> Iterator[Tuple[str, str]]:
    casing = () if lower is None else (
        (CONFIG, config, "strip_accents", (None, lower)), (FAST, fast, "normalizer.strip_accents", (None, lower)),
        (FAST, fast, "normalizer.lowercase", (lower,)))
    for name, entries, key, plain in (
            *((name, entries, key, plain) for name, entries in ((CONFIG, config), (FAST, fast))
              for key, plain in _PLAIN[name].items()), *casing):
        value = _value(entries, key, plain[0])
        if value not in plain:
            yield name, f"{key} is {log.brief(repr(value))}" + (
                f", do_lower_case {lower}" if plain in [row[-1] for row in casing] else "")


def _added(folder: str, config: Mapping[str, Any], fast: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """Tokens beside BERT's own, which a text is searched for before it is split; files of other tokenizers."""
    decoder, special = config.get("added_tokens_decoder"), "additional_special_tokens"
    for name, tokens in ((FAST, fast.get("added_tokens")), (_ADDED, _record(folder, _ADDED)),
                         (CONFIG, decoder.values() if isinstance(decoder, dict) else ()),
                         (CONFIG, config.get(special)), (_SPECIAL, _record(folder, _SPECIAL).get(special))):
        for token in tokens or ():
            content = token.get("content") if isinstance(token, dict) else token
            if content not in _TOKENS.values():
                yield name, (f"the added token {log.brief(repr(content))} (if no text of yours has it, take it "
                             "out of the file)")
    for name in _OF_OTHERS:
        if os.path.exists(os.path.join(folder, name)) and not (fast or os.path.exists(
                os.path.join(folder, "vocab.txt"))):
            yield name, "it is of SentencePiece or BPE"

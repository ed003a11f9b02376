"""The vocabulary of a model: its tokens, its tokenizer, its hash, and whether it is cased."""

import os
from typing import Any, Dict, Iterable, List, Optional, Tuple

from encoder import task_json
from engine.disk import files
from engine.errors import UserError
from tokenization import BatchTokenizer

FILE = "vocab.txt"
CASING_FILE = "tokenizer_config.json"  # Hugging Face's; has do_lower_case, model_max_length
TOKENIZER = "tokenizer.json"  # newer Hugging Face folders have it instead of FILE


def load_tokenizer(vocab_file: str, do_lower_case: bool) -> BatchTokenizer:
    """The tokenizer of a vocabulary file; raises a UserError if it is none."""
    files.require_file(vocab_file, "--vocab_file", files.VOCABULARY_BYTES)
    try:
        return BatchTokenizer(vocab_file, do_lower_case)
    except ValueError as error:
        raise UserError(f"--vocab_file: {error}") from error


def require_mask(tokenizer: BatchTokenizer, vocab_file: str) -> BatchTokenizer:
    """Returns the tokenizer; raises a UserError if the vocabulary has no [MASK]."""
    if tokenizer.mask_id is None:
        raise UserError(f"--vocab_file={vocab_file} lacks [MASK], which this command needs: give "
                        "the vocab.txt that came with the model")
    return tokenizer


def content_hash(vocab_file: str, what: str = "--vocab_file") -> str:
    """SHA-256 of a vocabulary file, in hex. Models with the same hash have the same token ids.

    Args:
        what: the name of the file in messages, such as its flag.
    """
    return files.hash_of_file(files.require_file(vocab_file, what, files.VOCABULARY_BYTES))


def is_lower_cased(folder: str) -> bool:
    """Whether the vocabulary in a model's folder is for lower-cased text."""
    return read_casing(folder, _tokens(folder))[0]


def recorded_casing(folder: str) -> Optional[bool]:
    """`do_lower_case` as the files of a model's folder say; None if none does."""
    description = task_json.read(folder)
    if description:
        return description["do_lower_case"]
    return _tokenizer_config(os.path.join(folder, CASING_FILE)).get("do_lower_case")


def write_casing(folder: str, do_lower_case: bool) -> None:
    """Writes what `recorded_casing` reads of a model without labels."""
    files.write_json(os.path.join(folder, CASING_FILE), {"do_lower_case": do_lower_case})


def read_tokens(path: str, vocab_size: int) -> List[str]:
    """The tokens of a vocabulary file, or of the one in a folder, checked against the config."""
    tokens = _tokens(path)
    if len(tokens) > vocab_size:
        raise UserError(f"the vocabulary of {path} has {len(tokens)} entries, more than the "
                        f"configuration's vocab_size {vocab_size}")
    return tokens


def _tokens(path: str) -> List[str]:
    tokenizer = os.path.join(path, TOKENIZER)
    vocab_file = os.path.join(path, FILE) if os.path.isdir(path) else path
    if os.path.exists(tokenizer) and not os.path.exists(vocab_file):
        return _tokens_of_tokenizer(tokenizer)
    text = files.read_text(vocab_file, "vocabulary", files.VOCABULARY_BYTES)
    # Only \n ends a line: some vocabularies hold other line ends of Unicode as tokens.
    tokens = text.rstrip("\n").split("\n")
    if tokens == [""]:
        raise UserError(f"vocabulary {vocab_file} is empty")
    return tokens


def _tokens_of_tokenizer(path: str) -> List[str]:
    """The tokens in a file of the `tokenizers` package, in the order of their ids."""
    tokenizer = files.read_record(path, "tokenizer", {})
    try:
        model = tokenizer["model"]
        ids = {**model["vocab"], **{token["content"]: token["id"]
                                    for token in tokenizer["added_tokens"]}}
        kind = model.get("type", "WordPiece")  # older files have no type
        tokens = sorted(ids, key=ids.get)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"tokenizer {path} has no vocabulary ({error})") from error
    if kind != "WordPiece" or [ids[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"tokenizer {path} is not WordPiece with the ids 0, 1, 2 …, as BERT's is")
    return tokens


def read_casing(folder: str, tokens: List[str]) -> Tuple[bool, List[str]]:
    """`do_lower_case`, from the folder's files or else from the vocabulary; and warnings."""
    path = os.path.join(folder, CASING_FILE)
    config = _tokenizer_config(path)
    do_lower_case = recorded_casing(folder)
    if do_lower_case is None:
        do_lower_case = not has_capitals(tokens)
    ours = {"strip_accents": do_lower_case, "tokenize_chinese_chars": True}
    return do_lower_case, [
        f"{path}: {key} is {config[key]}, here it is always {value}: some texts get other ids"
        for key, value in ours.items() if config.get(key) not in (None, value)]


def has_capitals(tokens: Iterable[str]) -> bool:
    """Whether over a hundredth of a vocabulary's words, more than a few added ones, have capitals."""
    cased = [token != token.lower() for token in tokens if token[:1] not in ("[", "<")]  # [CLS], <S>
    return 100 * sum(cased) > len(cased)


def longest_input(folder: str, num_positions: int) -> int:
    """The tokenizer config's longest input in tokens, by default the model's positions."""
    longest = _tokenizer_config(os.path.join(folder, CASING_FILE)).get("model_max_length")
    # transformers writes 1e30 if it knows no limit.
    known = isinstance(longest, int) and 2 < longest < num_positions
    return longest if known else num_positions


def _tokenizer_config(path: str) -> Dict[str, Any]:
    if not os.path.exists(path):
        return {}
    config = files.read_record(path, "tokenizer configuration", {})
    if config.get("do_lower_case") not in (None, True, False):
        raise UserError(f"tokenizer configuration {path} is damaged: do_lower_case is "
                        f"{str(config['do_lower_case'])[:40]}")
    return config

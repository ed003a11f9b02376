"""The vocabulary of a model: its tokens, its tokenizer, its hash, and whether it is cased."""

import os
from typing import Dict, Iterable, List, Optional

from encoder import task_json, tokenizer_files
from engine import log
from engine.disk import files
from engine.errors import UserError
from tokenization import BatchTokenizer

FILE = "vocab.txt"
_MOST_MOVED = 10  # at most one of so many rows may stand elsewhere
CASING_FILE = tokenizer_files.CONFIG


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


def recorded_casing(folder: str) -> Optional[bool]:
    """`do_lower_case` as the files of a model's folder say; None if none does."""
    description = task_json.read(folder)
    if description:
        return description["do_lower_case"]
    return tokenizer_files.read(folder)["do_lower_case"]


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
    tokenizer = os.path.join(path, tokenizer_files.FAST)
    vocab_file = os.path.join(path, FILE) if os.path.isdir(path) else path
    ids = _ids_of_tokenizer(tokenizer) if os.path.exists(tokenizer) else {}
    if ids and not os.path.exists(vocab_file):
        tokens = sorted(ids, key=ids.get)
        if [ids[token] for token in tokens] != list(range(len(tokens))):
            raise UserError(f"tokenizer {tokenizer} is not WordPiece with the ids 0, 1, 2 …, as BERT's is")
        return tokens
    text = files.read_text(vocab_file, "vocabulary", files.VOCABULARY_BYTES)
    # Only \n ends a line: some vocabularies hold other line ends of Unicode as tokens.
    tokens = text.rstrip("\n").split("\n")
    if tokens == [""]:
        raise UserError(f"vocabulary {vocab_file} is empty")
    stripped = [token.strip() for token in tokens]
    other = next((token for token, row in ids.items() if stripped[row:row + 1] != [token.strip()]), None)
    if other is not None:
        raise UserError(f"{vocab_file} and {tokenizer} are different vocabularies: {log.brief(repr(other))} is "
                        f"row {ids[other]} of the latter alone; take away the one that is not the model's")
    return tokens


def _ids_of_tokenizer(path: str) -> Dict[str, int]:
    """The ids of the tokens in a file of the `tokenizers` package."""
    tokenizer = files.read_record(path, "tokenizer", {})
    try:
        model = tokenizer["model"]
        return {**model["vocab"], **{token["content"]: int(token["id"])
                                     for token in tokenizer["added_tokens"]}}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"tokenizer {path} has no vocabulary ({error})") from error


def read_casing(folder: str, tokens: Optional[List[str]] = None) -> bool:
    """`do_lower_case` from the files of a model's folder; without an entry there, from `tokens`, the vocabulary.

    `tokens` are read from the folder if they are not given.
    """
    config = tokenizer_files.read(folder, not has_capitals(_tokens(folder) if tokens is None else tokens))
    return (task_json.read(folder) or config)["do_lower_case"]


def warn_of_another(vocab_file: str, folder: Optional[str]) -> None:
    """Warns if a vocabulary has the words of the one in a model's folder in other rows."""
    files_of_own = [os.path.join(folder or "", name) for name in (FILE, tokenizer_files.FAST)]
    own = next(filter(os.path.exists, files_of_own), None)
    if not folder or own is None or os.path.samefile(own, vocab_file):
        return
    rows = {token.strip(): row for row, token in enumerate(_tokens(vocab_file))}
    tokens = _tokens(folder)
    moved = sum(rows.get(token.strip()) != row for row, token in enumerate(tokens))
    if _MOST_MOVED * moved > len(tokens):
        log.warn(f"--vocab_file={vocab_file}: {moved:,} of the {len(tokens):,} rows of {own}, the model's own "
                 "vocabulary, stand elsewhere in it or are missing: the model reads other words")


def has_capitals(tokens: Iterable[str]) -> bool:
    """Whether over a hundredth of a vocabulary's words, more than a few added ones, have capitals."""
    cased = [token != token.lower() for token in tokens if token[:1] not in ("[", "<")]  # [CLS], <S>
    return 100 * sum(cased) > len(cased)


def longest_input(folder: str, num_positions: int) -> int:
    """The tokenizer config's longest input in tokens, by default the model's positions."""
    longest = tokenizer_files.read(folder).get("model_max_length")
    # transformers writes 1e30 if it knows no limit.
    known = isinstance(longest, int) and 2 < longest < num_positions
    return longest if known else num_positions

"""The words of a predicted answer as they are in the context.

A prediction is a span of tokens: lower-cased, perhaps without accents, and cut out of words such as
"Smith's" or "(1895-1943).". What the context has in its place is found by aligning the two texts
character by character. The rules are those of Google's run_squad.py, so that predictions are the
same.
"""

from typing import List, Optional, Sequence

from engine import log
from tokenization import BasicTokenizer


def join_pieces(tokens: Sequence[str]) -> str:
    """The text of WordPieces, with a space between words."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def project(predicted: str, words: str, tokenizer: BasicTokenizer, *, verbose: bool = False) -> str:
    """The part of the words of a context that a prediction stands for.

    Args:
        predicted: the text of the predicted tokens, see `join_pieces`.
        words: the words of the context that these tokens are of, with spaces between them.
        tokenizer: has made the tokens.
        verbose: logs why a part cannot be found.

    Returns:
        All of `words` if the part cannot be found.
    """
    tokenized = " ".join(tokenizer.tokenize(words))
    start = tokenized.find(predicted)
    if start < 0:
        return _all(words, f"{predicted!r} is not in {tokenized!r}", verbose)
    ours, theirs = _letters(words), _letters(tokenized)
    if len(ours) != len(theirs):
        return _all(words, f"{words!r} and {tokenized!r} differ in the number of letters", verbose)
    first = _aligned(start, theirs, ours)
    last = _aligned(start + len(predicted) - 1, theirs, ours)
    if first is None or last is None:
        return _all(words, f"{predicted!r} begins or ends with a space", verbose)
    return words[first:last + 1]


def _all(words: str, reason: str, verbose: bool) -> str:
    if verbose:
        log.info(f"An answer is not cut out of its words: {reason}")
    return words


def _letters(text: str) -> List[int]:
    """The positions of all characters but spaces."""
    return [position for position, character in enumerate(text) if character != " "]


def _aligned(position: int, of: List[int], to: List[int]) -> Optional[int]:
    """The position in `to` of the letter that is at `position` in `of`; None if that is a space."""
    try:
        return to[of.index(position)]
    except ValueError:
        return None

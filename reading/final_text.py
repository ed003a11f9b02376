"""The words of a predicted answer as they are in the context.

A prediction is a span of tokens: lower-cased, perhaps without accents, and cut out of words such as
"Smith's" or "(1895-1943).". What the context has in its place is found by aligning the two texts
character by character. The rules are those of Google's run_squad.py, so that predictions are the
same.
"""

from typing import List, Optional, Sequence

from tokenization import BasicTokenizer


def join_pieces(tokens: Sequence[str]) -> str:
    """The text of WordPieces, with a space between words."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def project(predicted: str, words: str, tokenizer: BasicTokenizer) -> Optional[str]:
    """The part of the words of a context that a prediction stands for; None if there is none.

    Args:
        predicted: the text of the predicted tokens, see `join_pieces`.
        words: the words of the context that these tokens are of, with spaces between them.
        tokenizer: has made the tokens.
    """
    tokenized = " ".join(tokenizer.tokenize(words))
    start = tokenized.find(predicted)
    ends = (start, start + len(predicted) - 1)
    ours, theirs = _letters(words), _letters(tokenized)
    if len(ours) != len(theirs) or any(end not in theirs for end in ends):
        return None
    first, last = (ours[theirs.index(end)] for end in ends)
    return words[first:last + 1]


def _letters(text: str) -> List[int]:
    """The positions of all characters but spaces."""
    return [position for position, character in enumerate(text) if character != " "]

"""Splits texts into clauses, the slots in which a text can take another phrase."""

import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
# A letter or digit of any other script.
LETTER = f"(?:(?!{_IDEOGRAPH})\\w)"
# A word: an ideograph, or a sequence of letters.
_WORD = re.compile(f"{_IDEOGRAPH}|{LETTER}+")
_ALNUM = "[0-9A-Za-z\uff10-\uff19]"
# Chinese marks always end a clause. Western marks also occur within numbers, times and names
# ("3.5", "10:30", "e.g."), between letters or digits. Chinese titles use a space as a comma.
_BREAK = re.compile(
    "[。｡！？，；：…\r\n]"
    f"|(?<!{_ALNUM})[.．,!?;:]|[.．,!?;:](?!{_ALNUM})"
    f"|(?<={_IDEOGRAPH})\\s+(?={_IDEOGRAPH})")
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
# Characters around a clause that do not belong to it.
_TRIMMED = _SPACES + "\"“”'‘’«»「」『』"


class Slot(NamedTuple):
    """A clause of a text and the text around it: `before + clause + after` is the whole text."""
    before: str
    clause: str
    after: str

    def filled(self, phrase: str) -> str:
        """The text with another phrase instead of the clause."""
        return self.before + phrase + self.after


def slots(text: str, min_words: int = 2, max_words: Optional[int] = None) -> List[Slot]:
    """A slot for each clause of a text; none for a text with fewer than two clauses.

    Args:
        min_words: the fewest words (or ideographs) of a clause that counts.
        max_words: the most of a clause that becomes a slot; None: any number.
    """
    found = [(Slot(text[:start], text[start:end], text[end:]), count_words(text[start:end]))
             for start, end in _spans(text)]
    found = [(slot, count) for slot, count in found if count >= min_words]
    if len(found) < 2:
        return []
    return [slot for slot, count in found if max_words is None or count <= max_words]


def clauses(text: str) -> List[str]:
    """The clauses of a text, or of a part of one."""
    return [text[start:end] for start, end in _spans(text) if start < end]


def count_words(text: str) -> int:
    """The number of words of a text; see `words`."""
    return len(words(text))


def words(text: str) -> List[str]:
    """The words of a text in order; each ideograph is a word."""
    return _WORD.findall(text)


def _spans(text: str) -> Iterator[Tuple[int, int]]:
    """The start and end of each clause, trimmed."""
    start = 0
    for end, next_start in [match.span() for match in _BREAK.finditer(text)] + [(len(text), 0)]:
        part = text[start:end]
        trimmed = part.strip(_TRIMMED)
        first = start + len(part) - len(part.lstrip(_TRIMMED))
        yield first, first + len(trimmed)
        start = next_start

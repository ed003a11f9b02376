"""Texts into clauses, and back: the places where a text takes another phrase."""

import re
from typing import Iterator, List, NamedTuple, Tuple

_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
# Of scripts in which words have letters, or digits.
LETTER = f"(?:(?!{_IDEOGRAPH})\\w)"
# What a text is long in: an ideograph is a word.
_WORD = re.compile(f"{_IDEOGRAPH}|{LETTER}+")
_ALNUM = "[0-9A-Za-z\uff10-\uff19]"
# Chinese marks end a clause wherever they stand. Western ones stand in numbers, times and
# names as well ("3.5", "10:30", "e.g."), with a letter or digit on both sides. Chinese titles
# have a space in the place of a comma.
_BREAK = re.compile(
    "[。｡！？，；：…\r\n]"
    f"|(?<!{_ALNUM})[.．,!?;:]|[.．,!?;:](?!{_ALNUM})"
    f"|(?<={_IDEOGRAPH})\\s+(?={_IDEOGRAPH})")
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
# Around a clause and not of it.
_TRIMMED = _SPACES + "\"“”'‘’«»「」『』"


class Slot(NamedTuple):
    """A clause of a text and what stands around it: `before + clause + after` is the text."""
    before: str
    clause: str
    after: str

    def filled(self, phrase: str) -> str:
        """The text with another phrase in the place of the clause."""
        return self.before + phrase + self.after


def slots(text: str, min_words: int = 2) -> List[Slot]:
    """A slot for each clause of a text; none where it has fewer than two clauses.

    Args:
        min_words: in a clause, ideographs or words; what is shorter is no slot.
    """
    found = [Slot(text[:start], text[start:end], text[end:]) for start, end in _spans(text)]
    found = [slot for slot in found if count_words(slot.clause) >= min_words]
    return found if len(found) > 1 else []


def clauses(text: str) -> List[str]:
    """The clauses of a text, or of a part of one."""
    return [text[start:end] for start, end in _spans(text) if start < end]


def count_words(text: str) -> int:
    return len(words(text))


def words(text: str) -> List[str]:
    """The words of a text as they stand there; each ideograph is one."""
    return _WORD.findall(text)


def _spans(text: str) -> Iterator[Tuple[int, int]]:
    """Start and end of each piece between breaks, trimmed."""
    start = 0
    for end, next_start in [match.span() for match in _BREAK.finditer(text)] + [(len(text), 0)]:
        part = text[start:end]
        trimmed = part.strip(_TRIMMED)
        first = start + len(part) - len(part.lstrip(_TRIMMED))
        yield first, first + len(trimmed)
        start = next_start

"""Texts of a user's files, and their clauses: the slots in which a text can take another phrase."""

import os
import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

from engine.data import text_files
from engine.data.text_files import OddRows
from engine.disk import files
from engine.disk.parts import Part
from runs import columns, table_head

_IDEOGRAPH = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
# A letter or digit of any other script.
_LETTER = f"(?:(?!{_IDEOGRAPH})\\w)"
_WORD = re.compile(f"{_IDEOGRAPH}|{_LETTER}+")
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
_MIN_WORDS, MAX_WORDS = 2, 10_000  # of a clause that becomes a slot


def read_texts(path: text_files.Path, what: str, column: Optional[str] = None,
               header: Optional[bool] = None) -> Iterator[str]:
    """Streams the texts of a file; see `read_with_categories`."""
    return (text for text, _ in read_with_categories(path, what, column, header))


def read_with_categories(path: text_files.Path, what: str, column: Optional[str],
                         header: Optional[bool], category_column: Optional[str] = None
                         ) -> Iterator[Tuple[str, str]]:
    """Streams texts and their categories, "" without a column of them.

    Args:
        path: a .tsv, .txt (tab-separated), .csv or .jsonl file, or a part of one.
        what: the flag that names the file, for errors.
        column, category_column: the name of a column, or its number from 1.
        header: whether the first line names the columns; None detects it.
    """
    table = table_head.read(files.require_file(os.fspath(path), what), header)
    if category_column is not None:
        table.position(category_column, "category")
    given = {role: [name] for role, name in zip(columns.ROLES, (column, category_column)) if name is not None}
    finder = columns.find(table, given, labelled=False, takes_pairs=category_column is not None)
    odd, count = OddRows("rows are read as empty texts"), 0
    part = path if isinstance(path, Part) else None
    for example in finder.split().examples(odd=odd, part=part, second="category"):
        text, category = (*example.texts, "")[:2] if example else ("", "")
        yield text, category.strip()
        count += 1
    odd.report(count, may_be_all=bool(part))


class Slot(NamedTuple):
    """A clause of a text and the text around it: `before + clause + after` is the whole text."""
    before: str
    clause: str
    after: str

    def filled(self, phrase: str) -> str:
        """The text with another phrase instead of the clause."""
        return self.before + phrase + self.after


def slots(text: str, max_words: int = MAX_WORDS) -> List[Slot]:
    """A slot for each clause of two to `max_words` words; none for a text with fewer than two."""
    long_enough = [Slot(text[:start], text[start:end], text[end:]) for start, end in _spans(text)
                   if _MIN_WORDS <= len(words(text[start:end])) <= max_words]
    return long_enough if len(long_enough) > 1 else []


def clauses(text: str) -> List[str]:
    """The clauses of a text, or of a part of one."""
    return [text[start:end] for start, end in _spans(text) if start < end]


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

"""Questions from files in SQuAD's format (1.1 and 2.0; CMRC 2018's, too), paragraph by paragraph."""

import re
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from engine.data.text_files import json_document, whole_characters
from engine.disk import files
from engine.errors import UserError

# What Google's run_squad.py splits at. Other spaces of Unicode are parts of words.
_WORD = re.compile("[^ \t\r\n\u202f]+")


class Answer(NamedTuple):
    """An answer as the file has it."""
    text: str
    start: int  # the character of the context where the text begins


class Question(NamedTuple):
    """A question about a context."""
    id: str
    text: str
    answers: Optional[Sequence[Answer]]  # [] if the context has none; None if the file does not say


class Paragraph(NamedTuple):
    """A context and the questions about it."""
    context: str
    questions: Sequence[Question]


class Words(NamedTuple):
    """The words of a context: what is between spaces."""
    texts: List[str]
    starts: np.ndarray  # the first character of each

    def of_character(self, position: int) -> int:
        """The number of the word that a character is in, or else of the word before it."""
        return max(0, int(np.searchsorted(self.starts, position, "right")) - 1)


def words_of(context: str) -> Words:
    """The words of a context."""
    words = list(_WORD.finditer(context))
    return Words([word.group() for word in words],
                 np.array([word.start() for word in words], np.int64))


def paragraphs(path: str) -> Iterator[Paragraph]:
    """The paragraphs of a file, in its order, checked one by one."""
    # SQuAD's 42 MB take 200 MB of memory.
    content = json_document(path, files.read_text(path, "the file of questions", files.DOCUMENT_BYTES))
    for number, article in enumerate(_entry(content, "data", list, path), 1):
        of_article = f"{path}, article {number}"
        for position, value in enumerate(_entry(article, "paragraphs", list, of_article), 1):
            where = f"{of_article}, paragraph {position}"
            questions = enumerate(_entry(value, "qas", list, where), 1)
            yield Paragraph(_text(value, "context", where), [
                _question(question, f"{where}, question {place}") for place, question in questions])


def _question(value: Any, where: str) -> Question:
    identity = _text(value, "id", where, of_number=True)
    where = f"{where} ({identity})"
    of_answer = f"{where}, an answer"
    answers = [Answer(_text(answer, "text", of_answer), _entry(answer, "answer_start", int, of_answer))
               for answer in _entry(value, "answers", list, where, default=[])]
    is_impossible = _entry(value, "is_impossible", bool, where, default=False)
    is_labelled = "answers" in value or "is_impossible" in value
    return Question(identity, _text(value, "question", where),
                    ([] if is_impossible else answers) if is_labelled else None)


def _text(value: Any, name: str, where: str, *, of_number: bool = False) -> str:
    return whole_characters(str(_entry(value, name, (str, int) if of_number else str, where)))


def _entry(value: Any, name: str, kind, where: str, default: Optional[Any] = None) -> Any:
    """An entry of a JSON object, checked."""
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a JSON object, and is {str(value)[:40]!r}")
    if name not in value and default is None:
        raise UserError(f"{where}: has no {name!r}; it has {', '.join(map(repr, value))}")
    entry = value.get(name, default)
    if not isinstance(entry, kind) or isinstance(entry, bool) and kind is not bool:
        raise UserError(f"{where}: {name!r} is {str(entry)[:40]!r}, of the wrong type")
    return entry

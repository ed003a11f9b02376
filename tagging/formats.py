"""Files of tagged sentences: columns as in CoNLL's shared tasks, and JSON lines with spans.

`open_file` finds out which of them a file is. Each is read as a stream of sentences, and written
again, line by line, with the predictions added.
"""

import abc
import collections
import functools
import itertools
import json
import os
import re
import unicodedata
from typing import Any, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from encoder.tag_set import IOB2, OUTSIDE, is_tag
from engine.data import text_files
from engine.errors import UserError
from runs import column_values
from runs.rows import describe_left_out
from tagging import schemes
from tagging.schemes import Entity
from tokenization import IDEOGRAPHS

EXTENSIONS = (".txt", ".tsv", ".conll", ".bio", ".bmes", ".bioes", ".iob", ".json", ".jsonl")

_DOCUMENT = re.compile(r"(?:^|[ \t])-DOCSTART-(?![^ \t(])")  # in CoNLL-2003 between documents
_JSON = (".json", ".jsonl")
_KEYS = ("entities", "spans", "label")  # of the entities in an object
_NUM_FIRST, _MIN_WORDS = 1000, 10  # sentences that show whether words are their numbers, and how many they have
_SPACES = " \t"  # between columns; other spaces of Unicode may be words

_UNIT = re.compile("(?:lm*)+|(?:dm*)+|[sm]m*")  # a word, of the letters of `_kind_of`

Span = Tuple[int, int, str]  # first character, the one after the last, type


class Sentence(NamedTuple):
    """A sentence of a file."""
    words: List[str]
    lines: Sequence[int]  # of each word in the file, from 1
    tags: Optional[List[str]]  # of each word; None in a file without tags
    missed: Sequence[str] = ()  # types of entities that no tags of these words can spell


class Layout(NamedTuple):
    """The columns of words and tags, from 1; negative: from the last."""
    word_column: int = 1
    tag_column: int = -1


class TaggedFile(abc.ABC):
    """A file of sentences.

    Attributes:
        has_tags: whether the tags are read, too.
        layout: what the user says about its columns.
        left_out: which sentences are not read, for the log; "" if all are.
    """
    left_out = ""

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        self.path = path
        self.layout = layout
        self.has_tags = has_tags

    @abc.abstractmethod
    def sentences(self) -> Iterator[Sentence]:
        """The sentences with words, one after the other; raises a UserError with file and line."""

    @abc.abstractmethod
    def with_predictions(self, tags: Iterator[List[str]]) -> Iterator[str]:
        """Every line of the file, with what is predicted.

        Args:
            tags: of the words of each of `sentences`.
        """


def open_file(path: str, layout: Layout, *, has_tags: bool) -> TaggedFile:
    """The file at a path, which exists.

    Args:
        has_tags: False: only the words are read.
    """
    is_json = os.path.splitext(path)[1].lower() in _JSON
    return (JsonLines if is_json else Columns)(path, layout, has_tags)


class Columns(TaggedFile):
    """A word a line, in columns between tabs or else spaces; a blank line ends a sentence.

    Lines of CoNLL-2003 between documents (-DOCSTART-) are no words, whatever columns they have.
    """

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        super().__init__(path, layout, has_tags)
        first = next((line[:2] for line in self._lines() if line[2]), None)
        if first is None:
            raise UserError(f"{path} holds no sentences")
        number, line = first
        self._separator = "\t" if "\t" in line else None  # None: any number of spaces
        self._num_columns = len(self._split(line))
        self._word = self._index(layout.word_column, "--word_column", number)
        self._tag = self._index(layout.tag_column, "--tag_column", number) if has_tags else None
        if self._tag == self._word:
            raise UserError(f"{path}, line {number}: {self._num_columns} columns, and words and "
                            "tags need one each; give them with --word_column and --tag_column")
        are_numbers = [word == str(place) for sentence in itertools.islice(self.sentences(), _NUM_FIRST)
                       for place, word in enumerate(sentence.words, 1)]
        if len(are_numbers) >= _MIN_WORDS and 10 * sum(are_numbers) >= 9 * len(are_numbers):
            raise UserError(f"{path}, line {number}: the words in column {self._word + 1} count 1, 2, 3 ... in each "
                            "sentence; give the column of words with --word_column, and that of tags with --tag_column")

    def _lines(self) -> Iterator[Tuple[int, str, bool]]:
        """Number and text of each line, and whether it has a word."""
        for number, line in text_files.lines(self.path, marks=text_files.MARKS_OF_COLUMNS):
            yield number, line, bool(line.strip(_SPACES)) and not _DOCUMENT.search(line)

    def _split(self, line: str) -> List[str]:
        return (line.split(self._separator) if self._separator else
                [field for field in line.split(" ") if field])

    def _index(self, column: int, flag: str, line: int) -> int:
        """The position of a column from 0."""
        index = column - 1 if column > 0 else self._num_columns + column
        if not (column and 0 <= index < self._num_columns):
            raise UserError(f"{flag}={column}: {self.path}, line {line} has {self._num_columns} "
                            "columns; they are numbered from 1, and from the last with -1, -2 …")
        return index

    def _rows(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        """Number, text and columns of each line; None for one without a word."""
        for number, line, has_word in self._lines():
            fields = self._split(line) if has_word else None
            if fields and len(fields) != self._num_columns:
                raise UserError(f"{self.path}, line {number}: {len(fields)} columns, and the first "
                                f"line has {self._num_columns}")
            if fields and self.has_tags:
                tag = fields[self._tag] = fields[self._tag].strip()  # "PER " is no other type than "PER"
                if not is_tag(tag):
                    raise UserError(f"{self.path}, line {number}: {tag[:40]!r} is no tag: O, or one of B, I, M, E "
                                    "and S, a hyphen and a type, as in B-PER; is --tag_column right?")
            yield number, line, fields

    def sentences(self) -> Iterator[Sentence]:
        for is_sentence, rows in itertools.groupby(self._rows(), lambda row: bool(row[2])):
            if is_sentence:
                numbers, _, fields = zip(*rows)
                yield Sentence([row[self._word] for row in fields], numbers,
                               [row[self._tag] for row in fields] if self.has_tags else None)

    def with_predictions(self, tags: Iterator[List[str]]) -> Iterator[str]:
        flat = itertools.chain.from_iterable(tags)
        for _, line, fields in self._rows():
            if line.strip(_SPACES):
                tag = next(flat) if fields else OUTSIDE
                row = line if self._separator else line.rstrip(_SPACES)
                line = f"{row}{self._separator or ' '}{tag}"
            yield line


class JsonLines(TaggedFile):
    """An object a line: a text, and its entities in characters.

    CLUENER's: {"text": ..., "label": {type: {mention: [[first, last], ...]}}}. Spans, with the
    character after the last: {"text": ..., "entities": [{"start": .., "end": .., "label": type}]},
    or a list [start, end, type] for each; the key may also be "spans" or "label". If every tagged object has
    an answer of Prodigy's users, those that they did not accept are left out.
    """

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        super().__init__(path, layout, has_tags)
        answers: Counter[str] = collections.Counter()
        for _, value in self._objects() if has_tags else ():
            answers.update([str(value.get("answer"))] if value else [])
            if answers and not column_values.are_answers(answers):
                return
        num_accepted = answers.pop(column_values.ACCEPTED, 0)
        if answers:
            self.left_out = describe_left_out(num_accepted, column_values.ACCEPTED, answers)

    def sentences(self) -> Iterator[Sentence]:
        for number, value in self._objects():
            is_read = value and not (self.left_out and value["answer"] != column_values.ACCEPTED)
            units = units_of(value["text"]) if is_read else []
            if units:
                tags, missed = (tags_of_spans(self._spans(number, value), units) if self.has_tags
                                else (None, []))
                yield Sentence([value["text"][start:end] for start, end in units],
                               [number] * len(units), tags, missed)

    def _objects(self) -> Iterator[Tuple[int, Optional[Dict[str, Any]]]]:
        """Number and object of each line; None for a blank one."""
        for number, line in text_files.lines(self.path):
            value = text_files.json_object(self.path, number, line) if line.strip() else None
            if value is not None:
                if not isinstance(value.get("text"), str):
                    keys = ", ".join(map(repr, value)) or "no keys"
                    raise UserError(f"{self.path}, line {number}: the object has no \"text\" that "
                                    f"is a text; it has {keys}")
                value["text"] = text_files.whole_characters(value["text"])
            yield number, value

    def with_predictions(self, tags: Iterator[List[str]]) -> Iterator[str]:
        for _, value in self._objects():
            if value:
                units = units_of(value["text"])
                entities = schemes.entities(next(tags)) if units else []
                value["predicted"] = [entry_of(value["text"], units, entity) for entity in entities]
            yield text_files.whole_characters(json.dumps(value, ensure_ascii=False)) if value else ""

    def _spans(self, number: int, value: Dict[str, Any]) -> List[Span]:
        key = next((key for key in _KEYS if key in value), None)
        if key is None:
            raise UserError(f"{self.path}, line {number}: the object has no \"label\", "
                            "\"entities\" or \"spans\"")
        try:
            return _spans_in(value["text"], value[key])
        except (TypeError, ValueError, KeyError, AttributeError):
            raise UserError(
                f"{self.path}, line {number}: {key!r} is {json.dumps(value[key])[:60]}, and must "
                "be {type: {mention: [[first, last], ...]}} or a list of [start, end, type] or "
                "{\"start\", \"end\", \"label\"}, of characters of the text, from 0, with the end behind the last one "
                "and, if it is there, the \"text\" between") from None


def _spans_in(text: str, label: Any) -> List[Span]:
    if isinstance(label, dict):  # CLUENER's
        items = [(first, last + 1, name, mention) for name, mentions in label.items()
                 for mention, places in mentions.items() for first, last in places]
    else:
        items = [(item["start"], item["end"], item["label"], *([item["text"]] if "text" in item else []))
                 if isinstance(item, dict) else item for item in label]
    spans = []
    for start, end, name, *mention in items:
        if not (type(start) is type(end) is int and 0 <= start < end <= len(text)
                and isinstance(name, str) and name and mention in ([], [text[start:end]])):
            raise ValueError
        spans.append((start, end, text_files.whole_characters(name)))
    return spans


def entry_of(text: str, units: Sequence[Tuple[int, int]], entity: Entity) -> Dict[str, Any]:
    """An entity as a JSON object, with its first character and the one after its last."""
    start, end = units[entity.first][0], units[entity.last][1]
    return {"start": start, "end": end, "label": entity.type, "text": text[start:end]}


def units_of(text: str) -> List[Tuple[int, int]]:
    """The words of a running text: the first character of each, and the one after its last.

    A word is as many letters as follow each other, or digits; an ideograph or any other sign but a
    space is one on its own, as in BERT's tokenizer. A combining mark belongs to what it follows.
    """
    return [match.span() for match in _UNIT.finditer("".join(map(_kind_of, text)))]


@functools.lru_cache(maxsize=None)
def _kind_of(char: str) -> str:
    """A letter for the kind of a character: m(ark), l(etter), d(igit), s(ign) or a space."""
    if char.isspace():
        return " "
    if unicodedata.category(char).startswith("M"):
        return "m"
    if any(first <= ord(char) <= last for first, last in IDEOGRAPHS):
        return "s"
    return "d" if char.isdigit() else "l" if char.isalpha() else "s"


def tags_of_spans(spans: Sequence[Span],
                  units: Sequence[Tuple[int, int]]) -> Tuple[List[str], List[str]]:
    """The tags of a text's words (IOB2), and the types of the spans that they cannot spell.

    Those begin or end within a word, or overlap another span, of which the longest is kept.
    """
    starts = {start: index for index, (start, _) in enumerate(units)}
    ends = {end: index for index, (_, end) in enumerate(units)}
    taken: List[Entity] = []
    missed: List[str] = []
    for start, end, name in sorted(set(spans), key=lambda span: (span[0] - span[1], span)):
        entity = Entity(name, starts.get(start, -1), ends.get(end, -1))
        if min(entity.first, entity.last) < 0 or any(
                entity.first <= other.last and other.first <= entity.last for other in taken):
            missed.append(name)
        else:
            taken.append(entity)
    return schemes.spell(taken, len(units), IOB2), missed

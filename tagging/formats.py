"""Files of tagged sentences: columns as in CoNLL's shared tasks, and JSON lines with spans.

`open_file` finds out which of them a file is. Each is read as a stream of sentences, and written
again, line by line, with the predictions added.
"""

import abc
import functools
import json
import os
import unicodedata
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.data import text_files
from engine.data.odd_rows import OddRows, attempt
from engine.errors import UserError
from tagging import schemes
from tagging.schemes import Entity
from tokenization import IDEOGRAPHS

EXTENSIONS = (".txt", ".tsv", ".conll", ".bio", ".bmes", ".bioes", ".iob", ".json", ".jsonl")
PREDICTED = "predicted"  # the key that is added to JSON lines

_DOCUMENT = "-DOCSTART-"  # CoNLL-2003's line between documents
_JSON = (".json", ".jsonl")
_KEYS = ("entities", "spans", "label")  # of the entities in an object
_SPACES = " \t"  # between columns; other spaces of Unicode may be words

Span = Tuple[int, int, str]  # first character, the one after the last, type


class Sentence(NamedTuple):
    """A sentence of a file."""
    words: List[str]
    lines: List[int]  # of each word in the file, from 1
    tags: Optional[List[str]]  # of each word; None in a file without tags
    missed: Sequence[str] = ()  # types of entities that no tags of these words can spell


class Layout(NamedTuple):
    """The columns of words and tags, from 1; negative: from the last."""
    word_column: int = 1
    tag_column: int = -1


class TaggedFile(abc.ABC):
    """A file of sentences.

    Attributes:
        has_tags: whether the tags are read, too. Lines that cannot be read are errors then, and
            left out otherwise.
        layout: what the user says about its columns.
    """

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        self.path = path
        self.layout = layout
        self.has_tags = has_tags

    @abc.abstractmethod
    def sentences(self) -> Iterator[Sentence]:
        """The sentences with words, one after the other; raises a UserError with file and line."""

    def with_predictions(self, tags: Iterator[List[str]]) -> Iterator[str]:
        """Every line of the file, with what is predicted if it can be read.

        Args:
            tags: of the words of each of `sentences`.
        """
        odd, num_lines = OddRows("lines are left as they are"), 0
        for line in self._tagged(tags, odd):
            num_lines += 1
            yield line
        odd.report(num_lines)

    @abc.abstractmethod
    def _tagged(self, tags: Iterator[List[str]], odd: OddRows) -> Iterator[str]:
        """`with_predictions`, counting the lines that cannot be read."""

    def _odd_rows(self) -> Optional[OddRows]:
        return None if self.has_tags else OddRows("")


def open_file(path: str, layout: Layout, *, has_tags: bool) -> TaggedFile:
    """The file at a path, which exists.

    Args:
        has_tags: False: only the words are read.

    Raises:
        UserError: its first line has no such columns.
    """
    if os.path.splitext(path)[1].lower() in _JSON:
        return JsonLines(path, layout, has_tags)
    return Columns(path, layout, has_tags)


class Columns(TaggedFile):
    """A word a line, in columns between tabs or else spaces; a blank line ends a sentence.

    Lines of CoNLL-2003 between documents (-DOCSTART-) are no words.
    """

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        super().__init__(path, layout, has_tags)
        first = next(((number, line) for number, line in text_files.lines(path)
                      if line.strip(_SPACES)), None)
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

    def _rows(self, odd: Optional[OddRows]) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        """Number, text and columns of each line; None for one that has none."""
        for number, line in text_files.lines(self.path):
            yield number, line, attempt(odd, None, self._fields, number, line) if (
                line.strip(_SPACES)) else None

    def _fields(self, number: int, line: str) -> List[str]:
        fields = self._split(line)
        if len(fields) != self._num_columns:
            raise UserError(f"{self.path}, line {number}: {len(fields)} columns, and the first "
                            f"line has {self._num_columns}")
        if self.has_tags and not schemes.is_tag(fields[self._tag]):
            raise UserError(f"{self.path}, line {number}: {fields[self._tag][:40]!r} is no tag: O, "
                            "or one of B, I, M, E and S, a hyphen and a type, as in B-PER; is "
                            "--tag_column right?")
        return fields

    def sentences(self) -> Iterator[Sentence]:
        """See `TaggedFile`."""
        rows: List[Tuple[int, List[str]]] = []
        for number, _, fields in self._rows(self._odd_rows()):
            if fields and fields[self._word] != _DOCUMENT:
                rows.append((number, fields))
            elif rows:
                yield self._sentence(rows)
                rows = []
        if rows:
            yield self._sentence(rows)

    def _sentence(self, rows: List[Tuple[int, List[str]]]) -> Sentence:
        return Sentence([fields[self._word] for _, fields in rows], [number for number, _ in rows],
                        [fields[self._tag] for _, fields in rows] if self.has_tags else None)

    def _tagged(self, tags: Iterator[List[str]], odd: OddRows) -> Iterator[str]:
        flat = (tag for some in tags for tag in some)
        for _, line, fields in self._rows(odd):
            if fields:
                tag = schemes.OUTSIDE if fields[self._word] == _DOCUMENT else next(flat)
                row = line if self._separator else line.rstrip(_SPACES)
                line = f"{row}{self._separator or ' '}{tag}"
            yield line


class JsonLines(TaggedFile):
    """An object a line: a text, and its entities in characters.

    CLUENER's: {"text": ..., "label": {type: {mention: [[first, last], ...]}}}. Spans, with the
    character after the last: {"text": ..., "entities": [{"start": .., "end": .., "label": type}]},
    or a list [start, end, type] for each; the key may also be "spans" or "label".
    """

    def sentences(self) -> Iterator[Sentence]:
        """See `TaggedFile`."""
        for number, _, value in self._objects(self._odd_rows()):
            units = units_of(value["text"]) if value else []
            if units:
                tags, missed = (tags_of_spans(self._spans(number, value), units) if self.has_tags
                                else (None, []))
                yield Sentence([value["text"][start:end] for start, end in units],
                               [number] * len(units), tags, missed)

    def _objects(self, odd: Optional[OddRows]) -> Iterator[Tuple[int, str, Optional[Dict]]]:
        """Number, text and object of each line; None for one that has none."""
        for number, line in text_files.lines(self.path):
            yield number, line, attempt(odd, None, self._object, number, line) if (
                line.strip()) else None

    def _object(self, number: int, line: str) -> Dict[str, Any]:
        value = text_files.json_object(self.path, number, line)
        if not isinstance(value.get("text"), str):
            raise UserError(f"{self.path}, line {number}: the object has no \"text\" that is a "
                            f"text; it has {', '.join(map(repr, value)) or 'no keys'}")
        return {**value, "text": text_files.whole_characters(value["text"])}

    def _tagged(self, tags: Iterator[List[str]], odd: OddRows) -> Iterator[str]:
        for _, line, value in self._objects(odd):
            if value:
                units = units_of(value["text"])
                value[PREDICTED] = [entry_of(value["text"], units, entity)
                                    for entity in (schemes.entities(next(tags)) if units else ())]
                line = text_files.whole_characters(json.dumps(value, ensure_ascii=False))
            yield line

    def _spans(self, number: int, value: Dict[str, Any]) -> List[Span]:
        key = next((key for key in _KEYS if key in value), None)
        if key is None:
            raise UserError(f"{self.path}, line {number}: the object has no \"label\", "
                            "\"entities\" or \"spans\"")
        try:
            return [_span(value["text"], *item) for item in _items(value[key])]
        except (TypeError, ValueError, KeyError, AttributeError):
            raise UserError(
                f"{self.path}, line {number}: {key!r} is {json.dumps(value[key])[:60]}, and must "
                "be {type: {mention: [[first, last], ...]}} or a list of [start, end, type] or "
                "{\"start\", \"end\", \"label\"}, of characters of the text, from 0") from None


def _items(label: Any) -> Iterator[Sequence[Any]]:
    """First character, the one after the last and type of each entity; of CLUENER's, the mention."""
    if isinstance(label, dict):
        for name, mentions in label.items():
            for mention, places in mentions.items():
                yield from ((first, last + 1, name, mention) for first, last in places)
        return
    for item in label:
        yield (item["start"], item["end"], item["label"]) if isinstance(item, dict) else item


def _span(text: str, start: int, end: int, name: str, mention: Optional[str] = None) -> Span:
    if not (type(start) is type(end) is int and 0 <= start < end <= len(text)
            and isinstance(name, str) and name
            and mention in (None, text[start:end])):
        raise ValueError
    return start, end, text_files.whole_characters(name)


def entry_of(text: str, units: Sequence[Tuple[int, int]], entity: Entity) -> Dict[str, Any]:
    """An entity as a JSON object, with its first character and the one after its last."""
    start, end = units[entity.first][0], units[entity.last][1]
    return {"start": start, "end": end, "label": entity.type, "text": text[start:end]}


def units_of(text: str) -> List[Tuple[int, int]]:
    """The words of a running text: the first character of each, and the one after its last.

    A word is as many letters as follow each other, or digits; an ideograph or any other sign but a
    space is one on its own, as in BERT's tokenizer. A combining mark belongs to what it follows.
    """
    units: List[Tuple[int, int]] = []
    kind_before = None
    for position, char in enumerate(text):
        kind = _kind_of(char)
        if kind == "mark" and units and units[-1][1] == position:
            units[-1] = (units[-1][0], position + 1)
            continue
        if kind == kind_before and kind in ("letter", "digit"):
            units[-1] = (units[-1][0], position + 1)
        elif kind:
            units.append((position, position + 1))
        kind_before = kind
    return units


@functools.lru_cache(maxsize=None)
def _kind_of(char: str) -> Optional[str]:
    if char.isspace():
        return None
    if any(first <= ord(char) <= last for first, last in IDEOGRAPHS):
        return "sign"
    if char.isdigit():
        return "digit"
    if unicodedata.category(char).startswith("M"):
        return "mark"
    return "letter" if char.isalpha() else "sign"


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
    return schemes.spell(taken, len(units), schemes.IOB2), missed

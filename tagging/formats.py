"""Files of tagged sentences: columns as in CoNLL's shared tasks, and JSON lines with spans.

`open_file` finds out which of them a file is. Each is read as a stream of sentences, and written
again, line by line, with the predictions added.
"""

import abc
import functools
import json
import os
import unicodedata
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.data import text_files
from engine.errors import UserError
from tagging import schemes
from tagging.schemes import Entity
from tokenization import IDEOGRAPHS

EXTENSIONS = (".txt", ".tsv", ".conll", ".bio", ".bmes", ".bioes", ".iob", ".json", ".jsonl")
PREDICTED = "predicted"  # the key that is added to JSON lines

_DOCUMENT = "-DOCSTART-"  # CoNLL-2003's line between documents
_JSON = (".json", ".jsonl")
_SPACES = " \t"  # between columns; other spaces of Unicode may be words


class Sentence(NamedTuple):
    """A sentence of a file."""
    words: List[str]
    lines: List[int]  # of each word in the file, from 1
    tags: Optional[List[str]]  # of each word; None in a file without tags
    missed: Sequence[str] = ()  # types of entities that no tags of these words can spell


class Layout(NamedTuple):
    """How the files of a run are to be read, where the user says so."""
    word_column: int = 1  # from 1
    tag_column: int = -1  # from 1; negative: from the last
    scheme: Optional[str] = None  # of the tags in columns; None: to be guessed


class TaggedFile(abc.ABC):
    """A file of sentences.

    Attributes:
        has_tags: whether the tags are read, too.
        layout: what the user says about it.
        has_scheme: whether its tags are in a scheme; spans are read as IOB2.
        lists_mentions: whether its entities are listed by type and mention, as CLUENER's are.
    """
    has_scheme = True
    lists_mentions = False

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        self.path = path
        self.layout = layout
        self.has_tags = has_tags

    @abc.abstractmethod
    def sentences(self) -> Iterator[Sentence]:
        """The sentences with words, one after the other; raises a UserError with file and line."""

    @abc.abstractmethod
    def with_predictions(self, tags: Iterable[List[str]], *,
                         lists_mentions: bool = False) -> Iterator[str]:
        """Every line of the file, with what is predicted.

        Args:
            tags: of the words of each of `sentences`.
            lists_mentions: the form for lines without entities, whose own form cannot be seen.
        """


def open_file(path: str, layout: Layout, *, has_tags: bool) -> TaggedFile:
    """The file at a path, which exists.

    Args:
        has_tags: False: only the words are read.

    Raises:
        UserError: it holds no sentence, or its first line is not in any of the formats.
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
        self._num_columns = len(self._fields(line))
        self._word = self._index(layout.word_column, "--word_column", number)
        self._tag = None
        if has_tags:
            self._tag = self._index(layout.tag_column, "--tag_column", number)
            if self._tag == self._word:
                raise UserError(f"{path}, line {number}: {self._num_columns} columns, and words "
                                "and tags need one each; give them with --word_column and "
                                "--tag_column")

    def _fields(self, line: str) -> List[str]:
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
        """Number, text and columns of each line; None for one that has no word."""
        for number, line in text_files.lines(self.path):
            if not line.strip(_SPACES):
                yield number, line, None
                continue
            fields = self._fields(line)
            if len(fields) != self._num_columns:
                raise UserError(f"{self.path}, line {number}: {len(fields)} columns, and the first "
                                f"line has {self._num_columns}")
            yield number, line, None if fields[self._word] == _DOCUMENT else fields

    def sentences(self) -> Iterator[Sentence]:
        """See `TaggedFile`."""
        words, lines, tags = [], [], []
        for number, _, fields in self._rows():
            if fields:
                words.append(fields[self._word])
                lines.append(number)
                if self.has_tags:
                    tags.append(fields[self._tag])
            elif words:
                yield Sentence(words, lines, tags if self.has_tags else None)
                words, lines, tags = [], [], []
        if words:
            yield Sentence(words, lines, tags if self.has_tags else None)

    def with_predictions(self, tags: Iterable[List[str]], *,
                         lists_mentions: bool = False) -> Iterator[str]:
        """See `TaggedFile`."""
        flat = (tag for some in tags for tag in some)
        for _, line, fields in self._rows():
            if not line.strip(_SPACES):
                yield line
            else:
                tag = next(flat) if fields else schemes.OUTSIDE
                row = line if self._separator else line.rstrip(_SPACES)
                yield f"{row}{self._separator or ' '}{tag}"


class JsonLines(TaggedFile):
    """An object a line: a text, and its entities in characters.

    CLUENER's: {"text": ..., "label": {type: {mention: [[first, last], ...]}}}. Spans, with the
    character after the last: {"text": ..., "entities": [{"start": .., "end": .., "label": type}]},
    or a list [start, end, type] for each; the key may also be "spans" or "label".
    """

    has_scheme = False

    def __init__(self, path: str, layout: Layout, has_tags: bool):
        super().__init__(path, layout, has_tags)
        first = next((value for _, value in text_files.json_objects(path)), None)
        if first is None:
            raise UserError(f"{path} holds no sentences")
        self.lists_mentions = isinstance(first.get(_entities_key(first)), dict)

    def sentences(self) -> Iterator[Sentence]:
        """See `TaggedFile`."""
        for number, value in text_files.json_objects(self.path):
            text = self._text(number, value)
            units = units_of(text)
            tags, missed = None, []
            if self.has_tags:
                spans = self._spans(number, value, text)
                tags, missed = tags_of_spans(spans, units)
            if units:
                yield Sentence([text[start:end] for start, end in units], [number] * len(units),
                               tags, missed)

    def with_predictions(self, tags: Iterable[List[str]], *,
                         lists_mentions: bool = False) -> Iterator[str]:
        """See `TaggedFile`."""
        tags = iter(tags)
        for number, line in text_files.lines(self.path):
            if not line.strip():
                yield line
                continue
            value = json.loads(line)
            text = self._text(number, value)
            units = units_of(text)
            found = schemes.entities(next(tags)) if units else []
            spans = [(units[entity.first][0], units[entity.last][1], entity.type)
                     for entity in found]
            key = _entities_key(value)
            as_mentions = isinstance(value[key], dict) if key else lists_mentions
            shown = _as_clueners(spans, text) if as_mentions else [
                {"start": start, "end": end, "label": name} for start, end, name in spans]
            yield text_files.whole_characters(
                json.dumps({**value, PREDICTED: shown}, ensure_ascii=False))

    def _text(self, number: int, value: Dict[str, Any]) -> str:
        if not isinstance(value.get("text"), str):
            raise UserError(f"{self.path}, line {number}: the object has no \"text\" that is a "
                            f"text; it has {', '.join(map(repr, value)) or 'no keys'}")
        return text_files.whole_characters(value["text"])

    def _spans(self, number: int, value: Dict[str, Any], text: str) -> List["Span"]:
        key = _entities_key(value)
        if key is None:
            raise UserError(f"{self.path}, line {number}: the object has no \"label\", "
                            "\"entities\" or \"spans\"")
        try:
            spans = _clueners(value[key]) if isinstance(value[key], dict) else [
                _span(item) for item in value[key]]
        except (TypeError, ValueError, KeyError, AttributeError):
            raise UserError(
                f"{self.path}, line {number}: {key!r} is {json.dumps(value[key])[:60]}, and must "
                "be {type: {mention: [[first, last], ...]}} or a list of [start, end, type] or "
                "{\"start\", \"end\", \"label\"}") from None
        for start, end, name in spans:
            if not 0 <= start < end <= len(text):
                raise UserError(f"{self.path}, line {number}: a span of {name!r} from character "
                                f"{start} to before {end}, and the text has {len(text)}")
        if isinstance(value[key], dict):
            self._check_mentions(number, value[key], text)
        return spans

    def _check_mentions(self, number: int, label: Dict[str, Dict[str, List[List[int]]]],
                        text: str) -> None:
        """Raises a UserError if a mention of CLUENER's is not where its characters are."""
        for mentions in label.values():
            for mention, places in mentions.items():
                for first, last in places:
                    if text[first:last + 1] != text_files.whole_characters(mention):
                        raise UserError(
                            f"{self.path}, line {number}: the mention {mention[:40]!r} is not at "
                            f"the characters {first} to {last}, where the text has "
                            f"{text[first:last + 1][:40]!r}; they count from 0, and the second is "
                            "the mention's last one")


Span = Tuple[int, int, str]  # first character, the one after the last, type


def _entities_key(value: Dict[str, Any]) -> Optional[str]:
    """The key of an object's entities; None if it has none."""
    return next((key for key in ("entities", "spans", "label") if key in value), None)


def _clueners(label: Dict[str, Dict[str, List[List[int]]]]) -> List[Span]:
    return [_span([first, last + 1, name]) for name, mentions in label.items()
            for places in mentions.values() for first, last in places]


def _span(item: Any) -> Span:
    start, end, name = (item["start"], item["end"], item["label"]) if isinstance(
        item, dict) else item
    if type(start) is not int or type(end) is not int or not isinstance(name, str) or not name:
        raise ValueError
    return start, end, text_files.whole_characters(name)


def _as_clueners(spans: Sequence[Span], text: str) -> Dict[str, Dict[str, List[List[int]]]]:
    label: Dict[str, Dict[str, List[List[int]]]] = {}
    for start, end, name in spans:
        places = label.setdefault(name, {}).setdefault(text[start:end], [])
        places.append([start, end - 1])
    return label


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

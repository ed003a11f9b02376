"""The first rows of a user's file, and its columns: by their names, or by their numbers from 1."""

import itertools
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from engine import log
from engine.data import text_files
from engine.data.text_files import OddRows, Unread
from engine.errors import UserError
from runs import column_values

# Names of the two columns of a pair, as in query1 and query2.
_NUMBERED = [(stem + first, stem + second) for stem in (
    "text", "sentence", "question", "query", "sent", "title", "review", "comment", "content",
    "document", "passage", "phrase", "premise", "string") for first, second in (
        ("1", "2"), ("_1", "_2"), (" 1", " 2"), ("_a", "_b"), (" a", " b"), ("a", "b"), ("_left", "_right"))]
# The names of the two columns of a pair, also in public data sets; the likeliest first.
PAIRS = (
    *_NUMBERED, *((first, second) for first, seconds in (
        ("premise", ("hypothesis",)), ("claim", ("evidence",)), ("text", ("text_pair", "hypothesis")),
        ("question", ("passage", "context", "sentence", "answer", "paragraph", "document", "response")),
        ("query", ("passage", "document", "doc", "answer", "context", "response")),
        ("context", ("response", "answer", "hypothesis")), ("anchor", ("positive",)),
        ("sentence", ("hypothesis",)), ("s1", ("s2",)), ("q1", ("q2",))) for second in seconds))
# Common names of columns, the likeliest first.
NAMES = {
    "label": ("label", "labels", "class", "category", "sentiment", "target", "score", "rating",
              "stars", "tag", "tags", "gold_label", "y"),
    "text": ("text", "text_a", "sentence", "sentence1", "question", "question1", "premise",
             "review", "comment", "content", "title", "query", "document", "body",
             *(first for first, _ in _NUMBERED)),
    "text_pair": ("text_b", "sentence2", "question2", "hypothesis", "answer", "passage",
                  "text_pair", *(second for _, second in _NUMBERED))}
NUMBERS = ("id", "index", "idx", "guid")  # names of columns that number the rows
_HEADER_NAMES = {*itertools.chain(*NAMES.values(), *PAIRS), *NUMBERS}
_NUM_HEAD_ROWS = 1000


class Table(NamedTuple):
    """The first rows of a file. Made by `read`."""
    path: str
    format: str  # one of text_files.FORMATS
    names: Tuple[str, ...]  # of the columns; empty without a header, or if that has numbers
    width: int  # number of columns
    rows: List[Sequence[Any]]  # without the header
    only: Optional[Tuple[int, str]] = None  # see `rows.Columns`
    header: bool = True  # whether the first line is one; also of JSON

    def position(self, column: str, role: str) -> int:
        """The index, from 0, of the column with this name or number. Raises a UserError."""
        count = self.names.count(column)
        if count == 1:
            return self.names.index(column)
        if count > 1:
            raise UserError(f"{self.path}, line 1: {count} columns are named {column!r}; choose "
                            f"one by its number, from 1, with --{role}_column")
        if column.isdecimal() and 1 <= int(column) <= self.width and self.format != "jsonl":
            return int(column) - 1
        raise UserError(f"{self.path} has no column {column!r} for --{role}_column; "
                        f"{self.describe()}")

    def spelling(self, name: str) -> str:
        """A column's name as the table writes it, if one column alone has it in any case; else the name as given."""
        alike = [other for other in self.names if other.casefold() == name.casefold()]
        return alike[0] if len(alike) == 1 else name

    def named(self, groups: Iterable[Sequence[str]], role: str, among: Optional[Sequence[int]] = None) -> List[int]:
        """The columns, of those `among`, with the names of one group, the likeliest first; none if there are none.

        Raises a UserError if another column has the name of one of them.
        """
        places = {self.names[position].strip().lower(): position
                  for position in reversed(range(self.width) if among is None else among)} if self.names else {}
        group = next((group for group in groups if places.keys() >= {*group}), ())
        return [self.position(self.names[places[name]], role) for name in group]

    def column(self, *positions: int) -> str:
        """A column's name, or its number if it has no name of its own; commas between several."""
        names = [self.names[position] if self.names else "" for position in positions]
        return ",".join(name if name and self.names.count(name) == 1 else str(position + 1)
                        for name, position in zip(names, positions))

    def values(self, position: int) -> List[Any]:
        """The column's values in the first rows that have one."""
        return [row[position] for row in self.rows
                if position < len(row) and row[position] is not None]

    def numbers_rows(self, position: int) -> bool:
        """Whether a column numbers the rows, by its name (pandas writes none or 'Unnamed: 0') or its values."""
        values = self.values(position)
        counts = column_values.count_rows(values)
        if self.names and not counts:
            name = self.names[position].strip().lower()
            counts = name in NUMBERS or (
                not name or name.startswith("unnamed:")) and not column_values.holds_texts(values)
        return counts

    def is_partial(self, position: int) -> bool:
        """Whether only some JSON objects have this key."""
        return self.format == "jsonl" and len(self.values(position)) < len(self.rows)

    def accepted(self, label: Optional[str]) -> "Table":
        """Without the rows that Prodigy's users did not accept, if a column beside the label has their answers."""
        names = [name.lower() for name in self.names]
        place = names.index("answer") if "answer" in names and (label or {*names} & {*NAMES["label"]}) else self.width
        values = self.values(place)
        if len(values) < len(self.rows) or not column_values.are_answers(values):
            return self
        return self._replace(only=(place, column_values.ACCEPTED), rows=[
            row for row in self.rows if row[place] == column_values.ACCEPTED] or self.rows)

    def describe(self) -> str:
        """The columns of the file, for an error message."""
        if self.format == "jsonl":
            return f"its first objects have {', '.join(map(repr, self.names)) or 'no keys'}"
        if not self.names:
            return (f"it has {self.width} columns and no {'names' if self.header else 'header'}: "
                    "give a column's number, from 1, or set --header if the first line is one")
        return (f"its columns are {log.brief(', '.join(self.names))}"
                + "; one that shares its name is given by its number, from 1" * (len({*self.names}) < self.width))


def read(path: str, header: Optional[bool], more_names: Sequence[str] = ()) -> Table:
    """Reads the first rows of a file.

    Args:
        header: whether the first line names the columns; None detects it.
        more_names: names that columns have, in addition to those of any file of texts, such as
            those of the training.
    """
    kind = text_files.input_format(path)
    odd = OddRows("", skips_lines=True)  # reading the whole file reports them
    if kind == "jsonl":
        return of_objects(path, (value for _, value in _first(text_files.json_objects(path, odd))), odd)
    read = text_files.csv_rows(path) if kind == "csv" else text_files.tsv_rows(path, odd)
    rows = [row for _, row in _first(read) if row]
    if not rows:
        raise UserError(odd.first or f"{path} holds no examples")
    if kind == "tsv" and column_values.are_quoted(rows):
        log.warn(f"{path}: quotes are text in .tsv and .txt, and cells begin and end with them; if they were added by "
                 "the program that wrote the file, write it as .csv")
    is_numbered = False
    if kind == "tsv" and len(rows[0]) == 1 and text_files.OBJECT.fullmatch(rows[0][0]):
        log.warn(f"{path}: its lines seem to be JSON objects, and each is read as a text; if they have texts, end the "
                 "file's name in .jsonl")
    if header is None:
        # The first line of a plain text file is a text, even if it is a word like "text".
        is_plain_text = not path.lower().endswith((".tsv", ".csv")) and len(rows[0]) == 1
        others = [row for row in rows if row != rows[0]]  # a header may be repeated
        is_numbered = not is_plain_text and column_values.number_columns(rows[0], others)
        header = is_numbered or not is_plain_text and column_values.are_names(
            rows[0], others, (*_HEADER_NAMES, *more_names))
        if len(rows[0]) == 1 and not (header or is_plain_text):
            log.info(f"{path}: no header line: its first line, {log.brief(repr(rows[0][0]))}, is a text; "
                     "--header changes that")
    names = tuple(name.strip() for name in rows[0]) if header and not is_numbered else ()
    return Table(path, kind, names, len(rows[0]), rows[1:] if header else rows, header=header)


def of_objects(path: str, objects: Iterable[Union[Mapping[str, Any], Unread]], odd: OddRows) -> Table:
    """The first of the objects in a file, and the keys of all; `odd` has counted those that could not be read."""
    keys: Dict[str, None] = {}
    rows: List[Mapping[str, Any]] = []
    for value in objects:
        keys.update(dict.fromkeys(value or ()))
        rows.extend([value] if not isinstance(value, Unread) and len(rows) < _NUM_HEAD_ROWS else [])
    if not rows:
        raise UserError(odd.first or f"{path} holds no examples")
    return Table(path, "jsonl", tuple(keys), len(keys), [[row.get(name) for name in keys] for row in rows])


def _first(rows: Iterable) -> Iterable:
    return itertools.islice(rows, _NUM_HEAD_ROWS)

"""Finds the columns of a user's file: flags give some, the others are detected.

Detection goes by the names of the columns, then by the values in the first rows.
"""

import collections
import itertools
import math
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from engine import log
from engine.data import text_files
from engine.data.text_files import OddRows
from engine.errors import UserError
from runs.rows import Columns, Split

# Common names of columns, the likeliest first.
_NAMES = {
    "label": ("label", "labels", "class", "category", "sentiment", "target", "score", "rating",
              "stars", "tag", "tags", "gold_label", "y"),
    "text": ("text", "text_a", "sentence", "sentence1", "question", "question1", "premise",
             "review", "comment", "content", "title", "query", "document", "body"),
    "text_pair": ("text_b", "sentence2", "question2", "hypothesis", "answer", "passage",
                  "text_pair")}
_HEADER_NAMES = {*itertools.chain(*_NAMES.values()), "id", "index", "idx", "guid"}
_NUM_HEAD_ROWS = 1000
_MAX_DISTINCT_SHARE = 0.9  # from this share on, the number of distinct values is not compared
_MIN_NUMBERS = 10  # below a word, for it to be the name of the column

# What a value is as a number; MISWRITTEN is a decimal comma, thousands, a percentage or unit.
FRACTION, INTEGER, MISSING, MISWRITTEN, WORD = range(5)
_NO_VALUE = ("", "na", "nan", "none", "null")  # without marks, as of n/a
_MISWRITTEN = re.compile(
    r"[^\w\s]?\s?\d+(?:(?:[.,'\s]\d{3})+(?:[.,]\d+)?|[.,]\d+|(?=\s?%))\s?[^\W\d_]{0,4}[^\w\s]?")


class Roles(NamedTuple):
    """The columns to read, each by its name or its number (from 1); None if not given or unused."""
    text: Optional[str] = None
    text_pair: Optional[str] = None
    label: Optional[str] = None


class Trained(NamedTuple):
    """The columns of a training file, for the other files of the run, and for later commands."""
    text: str
    text_pair: Optional[str]
    label: str
    header: Optional[bool]  # --header, if it was given
    width: int  # the number of columns

    def roles_in(self, table: "Table") -> Roles:
        """The roles that a file has columns for, found by name or, in a file without header, by number.

        A file with one column fewer than in training lacks the label.
        """
        label = int(self.label) if self.label.isdecimal() else self.width
        lacking = self.width - table.width

        def column_in(column: Optional[str]) -> Optional[str]:
            if not column or column in table.names:
                return column
            if table.names or lacking not in (0, 1) or not column.isdecimal():
                return None
            return str(int(column) - (lacking and int(column) > label))

        return Roles(*map(column_in, (self.text, self.text_pair, self.label)))


def of_description(entry: Any, where: str) -> Trained:
    """The columns in the description of the model in `where`; raises a UserError if they are damaged."""
    kinds = dict(text=str, text_pair=(str, type(None)), label=str, header=(bool, type(None)),
                 width=int)
    if not isinstance(entry, dict) or entry.keys() != kinds.keys() or not all(
            isinstance(entry[name], kind) for name, kind in kinds.items()):
        raise UserError(f"{where}: task.json is damaged: its columns are {str(entry)[:80]}")
    return Trained(**entry)


class Table(NamedTuple):
    """The first rows of a file. Made by `read_head`."""
    path: str
    format: str  # one of text_files.FORMATS
    names: Tuple[str, ...]  # of the columns; empty without a header
    width: int  # number of columns
    rows: List[Sequence[Any]]  # without the header

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

    def column(self, position: int) -> str:
        """The column's name, or its number if it has no name of its own."""
        name = self.names[position] if self.names else ""
        return name if self.names.count(name) == 1 else str(position + 1)

    def values(self, position: int) -> List[Any]:
        """The column's values in the first rows."""
        return [row[position] for row in self.rows if position < len(row)]

    def describe(self) -> str:
        """The columns of the file, for an error message."""
        if self.format == "jsonl":
            return f"its first object has {', '.join(map(repr, self.names)) or 'no keys'}"
        if not self.names:
            return (f"it has {self.width} columns and no header: give a column's number, from 1, "
                    "or set --header if the first line is one")
        return f"its columns are {log.brief(', '.join(self.names))}"


def read_head(path: str, header: Optional[bool], more_names: Sequence[str] = ()) -> Table:
    """Reads the first rows of a file.

    Args:
        header: whether the first line names the columns; None detects it.
        more_names: names that columns have, in addition to those of any file of texts.
    """
    kind = text_files.input_format(path)
    odd = OddRows("", skips_lines=True)  # reading the whole file reports them
    if kind == "jsonl":
        objects = [value for _, value in _first(text_files.json_objects(path, odd))
                   if value is not None]
        if not objects:
            raise UserError(odd.first or f"{path} holds no examples")
        names = tuple(objects[0])
        return Table(path, kind, names, len(names),
                     [[value.get(name, "") for name in names] for value in objects])
    read = text_files.csv_rows(path) if kind == "csv" else text_files.tsv_rows(path, odd)
    rows = [row for _, row in _first(read) if row is not None]
    if not rows:
        raise UserError(odd.first or f"{path} holds no examples")
    if header is None:
        # The first line of a plain text file is a text, even if it is a word like "text".
        is_plain_text = not path.lower().endswith((".tsv", ".csv")) and len(rows[0]) == 1
        others = [row for row in rows if row != rows[0]]  # a header may be repeated
        header = not is_plain_text and _is_header(rows[0], others, more_names)
    names = tuple(name.strip() for name in rows[0]) if header else ()
    return Table(path, kind, names, len(rows[0]), rows[1:] if header else rows)


def _is_header(first: List[str], others: List[List[str]], more_names: Sequence[str]) -> bool:
    """Whether a field is not repeated below, and a common column name or a word above numbers."""
    for position, field in enumerate(first):
        below = [row[position] for row in others if position < len(row)]
        if field not in below and (field.strip().lower() in (*_HEADER_NAMES, *more_names) or (
                len(below) >= _MIN_NUMBERS and are_mostly_numbers(below)
                and form_of(field) == WORD and any(map(str.isalpha, field)))):
            return True
    return False


def form_of(value: str) -> int:
    """What a value is as a number, one of FRACTION to WORD."""
    try:
        number = float(value)
    except ValueError:
        if re.sub(r"[^\w+]", "", value).lower() in _NO_VALUE:
            return MISSING
        return MISWRITTEN if _MISWRITTEN.fullmatch(value.strip()) else WORD
    return (MISSING if not math.isfinite(number) else
            INTEGER if number.is_integer() else FRACTION)


def are_mostly_numbers(values: Iterable[str]) -> bool:
    """Whether there are numbers, and at least nine for each word."""
    forms = collections.Counter(map(form_of, values))
    return 0 < forms[FRACTION] + forms[INTEGER] + forms[MISWRITTEN] >= 9 * forms[WORD]


def are_numbers(values: Iterable[str]) -> bool:
    """Whether all values are finite numbers."""
    return all(form_of(value) <= INTEGER for value in values)


def _first(rows: Iterable) -> Iterable:
    return itertools.islice(rows, _NUM_HEAD_ROWS)


def find(table: Table, given: Roles, *, labelled: bool, takes_pairs: Optional[bool],
         trained: Optional[Trained] = None) -> Roles:
    """The columns of a file: as the flags say, else as in training, else detected and logged.

    Args:
        given: those of the flags.
        labelled: whether the labels are read.
        takes_pairs: whether the model takes pairs of texts. None for a model that is not trained
            yet, or takes both: a column of second texts is then detected, unless a column of texts
            is given.
        trained: those of the training file.
    """
    if labelled and table.width < 2:
        hint = (table.describe() if table.format == "jsonl" else "columns are separated by tabs "
                "in .tsv and .txt, by commas in .csv")
        raise UserError(f"{table.path} has one column, and a text and a label are needed; {hint}")
    known = Roles(*(flag or column for flag, column in zip(
        given, trained.roles_in(table) if trained else Roles())))
    positions = {role: table.position(column, role) for role, column in known._asdict().items()
                 if column and (labelled or role != "label")}
    if labelled:
        _find_by_name(positions, "label", table)
    _find_by_name(positions, "text", table)
    if takes_pairs or takes_pairs is None and not known.text:
        _find_by_name(positions, "text_pair", table)
    if takes_pairs is None and not labelled and table.width == 2 and not (table.names or known.text):
        positions.update(text=0, text_pair=1)
    if takes_pairs is not None:
        _check_pair(positions, table, takes_pairs)
    if labelled:
        _find_by_values(positions, "label", table, lambda values: (
            min(len(set(map(str, values))), _MAX_DISTINCT_SHARE * len(values)),
            _mean_length(values)))
    _find_by_values(positions, "text", table, lambda values: -_mean_length(values))
    roles = Roles(**{role: table.column(position) for role, position in positions.items()})
    if table.names or table.width > 1:
        _report(table, roles, known)
    return roles


def _find_by_name(positions: Dict[str, int], role: str, table: Table) -> None:
    """Adds a free column with a common name as the role's, if the role has none yet."""
    free = {name.lower(): name for position, name in enumerate(table.names)
            if position not in positions.values()}
    name = next((free[name] for name in _NAMES[role] if name in free), None)
    if role not in positions and name is not None:
        positions[role] = table.position(name, role)


def _check_pair(positions: Dict[str, int], table: Table, takes_pairs: bool) -> None:
    """Raises a UserError if the second text is missing, or given to a model of single texts."""
    if takes_pairs and table.width == 2 and not table.names:
        positions.setdefault("text_pair", 1 - positions.get("text", 0))
    if takes_pairs and "text_pair" not in positions:
        raise UserError(f"{table.path}: the model takes pairs of texts, and no column looks "
                        "like the second text; name it with --text_pair_column")
    if "text_pair" in positions and not takes_pairs:
        raise UserError(f"--text_pair_column={table.column(positions['text_pair'])}: the model takes "
                        "single texts")


def _find_by_values(positions: Dict[str, int], role: str, table: Table,
                    rank: Callable[[List[Any]], Any]) -> None:
    """Adds the free column whose values rank lowest as the role's, if the role has none yet."""
    if role in positions:
        return
    free = [position for position in range(table.width) if position not in positions.values()]
    if not free:
        raise UserError(f"{table.path}: no column is left for the {role} ({table.describe()}); "
                        f"name it with --{role}_column")
    positions[role] = min(free, key=lambda position: rank(table.values(position)))


def _mean_length(values: Sequence[Any]) -> float:
    return sum(len(str(value)) for value in values) / max(len(values), 1)


def _report(table: Table, roles: Roles, known: Roles) -> None:
    """Logs the detected columns, if there are any."""
    parts = [f"{role.replace('_', ' ')} in column {column}"
             for role, column in roles._asdict().items() if column and not getattr(known, role)]
    ways = [f"--{role}_column" for role, column in roles._asdict().items()
            if column and not getattr(known, role)]
    if parts and table.format != "jsonl":
        parts.insert(0, "a header line" if table.names else "no header line")
        ways.insert(0, "--header")
    if parts:
        log.info(f"{table.path}: {', '.join(parts)} (detected); to change that, set "
                 f"{' or '.join(ways)}")


def split_of(table: Table, roles: Roles) -> Split:
    """The file as a split; raises a UserError if two roles have the same column."""
    positions = {role: table.position(column, role)
                 for role, column in roles._asdict().items() if column}
    if len(set(positions.values())) < len(positions):
        raise UserError(f"{table.path}: --text_column, --text_pair_column and --label_column must "
                        "be different columns")
    keys: Tuple[str, ...] = ()
    if table.format == "jsonl":
        keys = tuple(table.names[position] for position in positions.values())
        positions = {role: index for index, role in enumerate(positions)}
    columns = Columns(
        positions["text"], positions.get("text_pair"), positions.get("label"),
        header=bool(table.names), width=None if keys else table.width)
    return Split(table.path, columns, table.format, keys)

"""Finds the columns of a user's file: flags give some, the others are detected.

Detection goes by the names of the columns, then by the values in the first rows.
"""

import itertools
import math
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from engine import log
from engine.data import text_files
from engine.data.odd_rows import OddRows
from engine.errors import UserError
from runs.rows import Columns, Split

# Common names of columns, the likeliest first.
_TEXT_NAMES = ("text", "text_a", "sentence", "sentence1", "question", "question1", "premise",
               "review", "comment", "content", "title", "query", "document", "body")
_PAIR_NAMES = ("text_b", "sentence2", "question2", "hypothesis", "answer", "passage", "text_pair")
_LABEL_NAMES = ("label", "labels", "class", "category", "sentiment", "target", "score", "rating",
                "stars", "tag", "tags", "gold_label", "y")
_HEADER_NAMES = {*_TEXT_NAMES, *_PAIR_NAMES, *_LABEL_NAMES, "id", "index", "idx", "guid"}
_NUM_HEAD_ROWS = 1000
_MAX_DISTINCT_SHARE = 0.9  # from this share on, the number of distinct values is not compared
_MIN_NUMBERS = 10  # below a word, for it to be the name of the column


class Roles(NamedTuple):
    """The columns to read, each by its name or its number (from 1); None if not given or unused."""
    text: Optional[str]
    text_pair: Optional[str]
    label: Optional[str]


class Trained(NamedTuple):
    """The columns that a model was trained with, which its description remembers."""
    text: str
    text_pair: Optional[str]
    label: str
    header: Optional[bool]  # --header, if it was given
    width: int  # the number of columns

    def roles_in(self, table: "Table") -> Roles:
        """Those that a file has: of this name or, if it has as many columns, this number."""
        def is_in(column: str) -> bool:
            return column in table.names or column.isdecimal() and table.width == self.width

        return Roles(*(column if column and is_in(column) else None
                       for column in (self.text, self.text_pair, self.label)))


def of_description(entry: Any, where: str) -> Trained:
    """The columns that the description of the model in `where` has; raises a UserError."""
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
                            "one by its number, from 1")
        if column.isdecimal() and 1 <= int(column) <= self.width and self.format != "jsonl":
            return int(column) - 1
        raise UserError(f"{self.path} has no column {column!r} for --{role}_column; "
                        f"{self.describe()}")

    def describe(self) -> str:
        """The columns of the file, for an error message."""
        if self.format == "jsonl":
            return f"its first object has {', '.join(map(repr, self.names)) or 'no keys'}"
        if not self.names:
            return (f"it has {self.width} columns and no header: give a column's number, from 1, "
                    "or set --header if the first line is one")
        more = "" if self.width <= 50 else f" ... ({self.width} columns)"
        return f"its columns are {', '.join(self.names[:50])}{more}"

    def column(self, position: int) -> List[Any]:
        """The column's values in the first rows."""
        return [row[position] for row in self.rows if position < len(row)]


def read_head(path: str, header: Optional[bool]) -> Table:
    """Reads the first rows of a file.

    Args:
        header: whether the first line names the columns; None detects it.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    kind = text_files.input_format(path)
    if kind == "jsonl":
        odd = OddRows("")  # whoever reads the whole file tells of them
        objects = [value for _, value in _first(text_files.json_objects(path, odd))
                   if value is not None]
        if not objects:
            raise UserError(odd.first or f"{path} holds no examples")
        names = tuple(objects[0])
        return Table(path, kind, names, len(names),
                     [[value.get(name, "") for name in names] for value in objects])
    read = text_files.csv_rows if kind == "csv" else text_files.tsv_rows
    rows = [row for _, row in _first(read(path))]
    if not rows:
        raise UserError(f"{path} holds no examples")
    _check_line_ends(path, rows)
    if header is None:
        # The first line of a plain text file is a text, even if it is a word like "text".
        is_plain_text = not path.lower().endswith((".tsv", ".csv")) and len(rows[0]) == 1
        header = not is_plain_text and _is_header(rows[0], rows[1:])
    names = tuple(name.strip() for name in rows[0]) if header else ()
    return Table(path, kind, names, len(rows[0]), rows[1:] if header else rows)


def _check_line_ends(path: str, rows: List[List[str]]) -> None:
    """Refuses a file whose first line does not show the number of columns."""
    if len(rows) == 1 and any("\r" in field for field in rows[0]):
        raise UserError(f"{path}: its lines end with \\r alone, as on old Macs; convert them to "
                        "\\n, for example with tr")
    if rows[0] == [""] and any(len(row) > 1 for row in rows):
        raise UserError(f"{path}, line 1: the first line is blank, and must be a header or an "
                        "example; remove it")


def _is_header(first: List[str], others: List[List[str]]) -> bool:
    """Whether a field is a common column name not repeated below, or a word above numbers only."""
    for position, field in enumerate(first):
        below = [row[position] for row in others if position < len(row)]
        if field.strip().lower() in _HEADER_NAMES and field not in below:
            return True
        if len(below) >= _MIN_NUMBERS and are_numbers(below) and not are_numbers([field]):
            return True
    return False


def are_numbers(values: Iterable[str]) -> bool:
    """Whether all values are finite numbers."""
    try:
        return all(math.isfinite(float(value)) for value in values)
    except ValueError:
        return False


def _first(rows: Iterable) -> Iterable:
    return itertools.islice(rows, _NUM_HEAD_ROWS)


def complete(roles: Roles, table: Table, takes_pairs: Optional[bool] = None) -> Roles:
    """Detects the columns of a file with labels that `roles` does not give.

    The column of second texts is detected only by its name.

    Args:
        takes_pairs: whether the model takes pairs of texts; None if it is not trained yet.

    Raises:
        UserError: a column is missing or ambiguous, or the file has too few columns.
    """
    if table.width < 2:
        hint = (table.describe() if table.format == "jsonl" else "columns are separated by tabs "
                "in .tsv and .txt, by commas in .csv")
        raise UserError(f"{table.path} has one column, and a text and a label are needed; {hint}")
    found = _given_positions(roles, table)
    _find_by_name(found, "label", table, _LABEL_NAMES)
    _find_by_name(found, "text", table, _TEXT_NAMES)
    if takes_pairs or (takes_pairs is None and roles.text is None):
        _find_by_name(found, "text_pair", table, _PAIR_NAMES)
    _find_by_values(found, "label", table, lambda values: (
        min(len(set(map(str, values))), _MAX_DISTINCT_SHARE * len(values)), _mean_length(values)))
    _find_by_values(found, "text", table, lambda values: -_mean_length(values))
    return _roles(found, roles, table)


def complete_texts(roles: Roles, table: Table, takes_pairs: bool) -> Roles:
    """Detects the columns of a file without labels that `roles` does not give.

    Raises:
        UserError: the model takes pairs, and the file has no column of second texts.
    """
    if roles.text_pair and not takes_pairs:
        raise UserError(f"--text_pair_column={roles.text_pair}: the model takes single texts")
    found = _given_positions(roles._replace(label=None), table)
    if takes_pairs:
        _find_by_name(found, "text_pair", table, _PAIR_NAMES)
        if "text_pair" not in found and table.width == 2 and not table.names:
            found["text_pair"] = 1 - found.get("text", 0)
        if "text_pair" not in found:
            raise UserError(f"{table.path}: the model takes pairs of texts, and no column looks "
                            "like the second text; name it with --text_pair_column")
    _find_by_name(found, "text", table, _TEXT_NAMES)
    _find_by_values(found, "text", table, lambda values: -_mean_length(values))
    return _roles(found, roles, table)


def report(table: Table, roles: Roles, given: Roles, trained: Optional[Roles] = None) -> None:
    """Logs the columns that are detected or as in training, unless the file has only one."""
    if roles == given or (table.width == 1 and not table.names):
        return
    parts = [f"{role.replace('_', ' ')} in column {column}"
             + ("" if column == getattr(given, role) else
                " (as in training)" if column == getattr(trained, role, None) else " (detected)")
             for role, column in roles._asdict().items() if column is not None]
    if table.format == "jsonl":
        log.info(f"{table.path}: {', '.join(parts)}; to change that, set --..._column")
        return
    header = "a header line" if table.names else "no header line"
    log.info(f"{table.path}: {header}, {', '.join(parts)}; to change that, set --header or "
             "--..._column")


def _given_positions(roles: Roles, table: Table) -> Dict[str, int]:
    """Role → index of its column, of the roles that are given."""
    return {role: table.position(column, role)
            for role, column in roles._asdict().items() if column is not None}


def _roles(found: Dict[str, int], given: Roles, table: Table) -> Roles:
    """The columns as given; a detected one by its name, or its number if the name is ambiguous."""
    def column(position: int) -> str:
        name = table.names[position] if table.names else ""
        return name if table.names.count(name) == 1 else str(position + 1)

    return Roles(*(getattr(given, role) or (column(found[role]) if role in found else None)
                   for role in Roles._fields))


def _find_by_name(found: Dict[str, int], role: str, table: Table,
                  candidates: Sequence[str]) -> None:
    """Adds a free column with one of these names as the role's, if the role has none yet."""
    free = [(name.lower(), position) for position, name in enumerate(table.names)
            if position not in found.values()]
    for candidate in candidates if role not in found else ():
        positions = [position for name, position in free if name == candidate]
        if len(positions) > 1:
            raise UserError(f"{table.path}, line 1: {len(positions)} columns are named "
                            f"{candidate!r}; choose one by its number, from 1, with "
                            f"--{role}_column")
        if positions:
            found[role] = positions[0]
            return


def _find_by_values(found: Dict[str, int], role: str, table: Table,
                    rank: Callable[[List[Any]], Any]) -> None:
    """Adds the free column whose values rank lowest as the role's, if the role has none yet."""
    if role in found:
        return
    free = [position for position in range(table.width) if position not in found.values()]
    if not free:
        raise UserError(f"{table.path}: no column is left for the {role} ({table.describe()}); "
                        f"name it with --{role}_column")
    found[role] = min(free, key=lambda position: rank(table.column(position)))


def _mean_length(values: Sequence[Any]) -> float:
    return sum(len(str(value)) for value in values) / max(len(values), 1)


def split_of(table: Table, roles: Roles, reference: Table, *, labelled: bool) -> Split:
    """The file as a split whose columns are those that `roles` means in the file `reference`.

    Args:
        labelled: whether the labels are read.

    Raises:
        UserError: a column is missing, or two roles have the same one.
    """
    both_named = bool(table.names and reference.names)
    if roles.label and not labelled and not both_named and table.width == reference.width - 1:
        roles = _without_label(roles, reference)
    wanted = {"text": roles.text, "text_pair": roles.text_pair}
    if labelled:
        wanted["label"] = roles.label
    positions = {role: _position_in(table, column, role, reference)
                 for role, column in wanted.items() if column is not None}
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


def _position_in(table: Table, column: str, role: str, reference: Table) -> int:
    """The index in `table` of a column of `reference`: by its name, or else by its number."""
    if table is not reference and table.names and reference.names:
        name = reference.names[reference.position(column, role)]
        if table.names.count(name) == 1:
            return table.names.index(name)
    return table.position(column, role)


def _without_label(roles: Roles, reference: Table) -> Roles:
    """The columns' numbers in a file that has the columns of `reference` without the label's."""
    label = reference.position(roles.label, "label")

    def shifted(column: Optional[str], role: str) -> Optional[str]:
        if column is None:
            return None
        position = reference.position(column, role)
        return str(position + 1 - (position > label))

    return Roles(shifted(roles.text, "text"), shifted(roles.text_pair, "text_pair"), None)

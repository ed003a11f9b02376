"""Finds the columns of a user's file: flags give some, the others are detected.

Detection goes by the names of the columns, then by the values in the first rows.
"""

import itertools
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from encoder import label_types, written_labels
from engine import log
from engine.data.text_files import OddRows, Path
from engine.disk.parts import Part
from engine.errors import UserError
from runs import column_values, table_head
from runs.rows import Columns, Example, Split, read_split
from runs.table_head import NAMES, PAIRS, Place, Table

_UNSURE_NAMES = ("answer", "response", "context", "document", "passage")  # of second texts, or of something else
_SEPARATORS = "columns are separated by tabs in .tsv and .txt, by commas in .csv"
_MAX_DISTINCT_SHARE = 0.9  # from this share on, the number of distinct values is not compared


class Roles(NamedTuple):
    """The columns to read, each by its name or its number (from 1); None if not given or unused.

    The label may have several columns of 0 and 1, with commas between.
    """
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

    def roles_in(self, table: Table) -> Roles:
        """The roles that a file has columns for, found by name (in any case) or, in a file without header, by number.

        A file that has fewer columns than in training, by those of the label, lacks the label.
        """
        labels = [int(label) for label in self.label.split(",") if label.isdecimal()] or [self.width]
        lacking = self.width - table.width

        def column_in(column: Optional[str]) -> Optional[str]:
            column = column and table.spelling(column)
            several = (column or "").split(",")  # of labels, whose classes have these very names
            if not column or column in table.names or set(several) & set(table.names):
                return column
            if (table.names or lacking not in (0, len(labels))
                    or not all(map(str.isdecimal, several))):
                return None
            left_out = labels if lacking else []
            return ",".join(str(number - sum(label < number for label in left_out))
                            for number in map(int, several))

        return Roles(*map(column_in, (self.text, self.text_pair, self.label)))


def names_of(trained: Optional[Trained]) -> List[str]:
    """The names of the columns of the training, in lower case; none of those with a number."""
    named = (column for columns in trained[:3] for column in (columns or "").lower().split(",")
             ) if trained else ()
    return [name for name in named if name and not name.isdecimal()]


def of_description(entry: Any, where: str) -> Trained:
    """The columns in the description of the model in `where`; raises a UserError if they are damaged."""
    kinds = dict(text=str, text_pair=(str, type(None)), label=str, header=(bool, type(None)),
                 width=int)
    if not isinstance(entry, dict) or entry.keys() != kinds.keys() or not all(
            isinstance(entry[name], kind) for name, kind in kinds.items()):
        raise UserError(f"{where}: task.json is damaged: its columns are {str(entry)[:80]}")
    return Trained(**entry)


def find(table: Table, given: Roles, *, labelled: bool, takes_pairs: Optional[bool],
         trained: Optional[Trained] = None, kind: Optional[label_types.Kind] = None) -> Roles:
    """The columns of a file: as the flags say, else as in training, else detected and logged.

    Args:
        given: those of the flags.
        labelled: whether the labels are read.
        takes_pairs: whether the model takes pairs of texts. None for a model that is not trained
            yet, or takes both: a column of second texts is then detected, unless a column of texts
            is given.
        trained: those of the training file.
        kind: how the trained model's labels are parsed.
    """
    if labelled and table.width < 2:
        hint = table.describe() if table.format == "jsonl" else (
            f"line 1 is {log.brief(repr(*(table.names or table.rows[0])))} (remove it if it is no row); {_SEPARATORS}")
        raise UserError(f"{table.path} has one column, and a text and a label are needed; {hint}")
    known = Roles(*(flag or column for flag, column in zip(
        given, trained.roles_in(table) if trained else Roles())))
    positions: Dict[str, Place] = {
        role: table.place(column, role) for role, column in known._asdict().items()
        if column and (labelled or role != "label")}
    if not (labelled or given.text or takes_pairs):
        check_commas(table, known.text)
    if labelled:
        _find_by_name(positions, "label", table)
    _find_named_texts(positions, table, takes_pairs, is_text_known=bool(known.text))
    if takes_pairs is None and not labelled and table.width == 2 and not (table.names or known.text):
        positions.update(text=0, text_pair=1)
    if takes_pairs is not None:
        _check_pair(positions, table, takes_pairs)
    if labelled:
        is_named = "label" in positions
        if not known.label:
            _find_flags(positions, table)
        _find_by_values(positions, "label", table, lambda values: (
            min(len(set(map(str, values))), _MAX_DISTINCT_SHARE * len(values)),
            column_values.mean_length(values)))
        if not known.label:
            _check_more_labels(positions, table, is_named)
    _find_by_values(positions, "text", table, lambda values: -column_values.mean_length(values))
    roles = Roles(**{role: table.column(position) for role, position in positions.items()})
    by_number = bool(not labelled and known.text and not (given.text or table.names))
    if by_number and table.width > 1 and kind:
        _check_numbers(positions, table, known.label and table.place(known.label, "label"), kind)
    if table.header or table.width > 1:
        _report(table, roles, given if by_number else known, _free(positions, table),
                "as in training" if by_number else "detected")
    if not known.text:
        more = "" if takes_pairs is False else ", or --text_pair_column={} for second texts"
        warn_of_unread(table, _free(positions, table), "--text_column" + more)
    return roles


def _find_named_texts(positions: Dict[str, Place], table: Table, takes_pairs: Optional[bool], *,
                      is_text_known: bool) -> None:
    """Finds the texts, one or a pair, by the names of their columns."""
    may_be_pairs = takes_pairs or takes_pairs is None and not is_text_known
    is_known = "text_pair" in positions
    if may_be_pairs and not {"text", "text_pair"} & positions.keys():
        _find_pair(positions, table)
    _find_by_name(positions, "text", table)
    if may_be_pairs:
        _find_by_name(positions, "text_pair", table)
    if not (takes_pairs or is_known) and _are_no_second_texts(positions.get("text_pair"), table):
        del positions["text_pair"]


def _check_numbers(positions: Dict[str, Place], table: Table, label: Optional[Place], kind: label_types.Kind) -> None:
    """Raises a UserError if the columns of texts in training hold labels here; warns if that of labels holds none."""
    for role in {"text", "text_pair"} & positions.keys():
        column, values = table.column(positions[role]), table.values(positions[role])
        if 2 * len(column_values.no_labels(kind, values)) < len(values):
            raise UserError(f"{table.path}: column {column} had the texts in training, and has labels here, such as "
                            f"{log.brief(repr(values[0]))}; name the column of the texts with --{role}_column")
    values = table.values(label) if label in _free(positions, table) else []
    odd = column_values.no_labels(kind, values)
    if 2 * len(odd) > len(values) and (len(set(map(str, odd))) > 1 or column_values.holds_texts(odd)):
        log.warn(f"{table.path}: column {table.column(label)} had the labels in training, and has others here, "
                 f"such as {log.brief(repr(odd[0]))}; it is not read: if it has the texts, set --text_column")


def check_commas(table: Table, trained_text: Optional[str] = None) -> None:
    """Raises a UserError if CSV without a header may hold a text a line, cut at its commas, or has no commas.

    Args:
        trained_text: the number of the column of texts in training, if it is known: then only a
            file that looks like prose is refused.
    """
    if table.format != "csv":
        return
    lines = [",".join(row) for row in (table.names, *table.rows) if any(row)] if table.width == 1 else []
    for mark in ";\t":
        counts = {line.count(mark) for line in lines}
        if len(lines) > 1 and len(counts) == 1 and 0 not in counts:
            raise UserError(f"{table.path} has no commas between columns, and {mark!r} on each line, as in "
                            f"{log.brief(repr(lines[0]))}; {_SEPARATORS}. If each line is a text, set --text_column=1")
    if table.header or table.width < 2:
        return
    num_spaced = sum(any(field[:1] == " " for field in row[1:]) for row in table.rows)
    if trained_text and 2 * num_spaced <= len(table.rows) and not any(
            column_values.holds_texts(table.values(position)) for position in range(table.width)
            if str(position + 1) != trained_text):
        return
    raise UserError(f"{table.path} is CSV without a header, so its {table.width} columns may be "
                    "texts with commas. If each line is a text, name the file .txt, or put quotes "
                    "around each text; if not, give the column of the text with --text_column, or "
                    "a header line")


def _free(positions: Dict[str, Place], table: Table) -> List[int]:
    """The columns without a role."""
    taken = {*itertools.chain.from_iterable(map(_several, positions.values())), *(table.only or ())[:1]}
    return [position for position in range(table.width) if position not in taken]


def _several(place: Place) -> Tuple[int, ...]:
    return place if isinstance(place, tuple) else (place,)


def _find_flags(positions: Dict[str, Place], table: Table) -> None:
    """Adds several free columns of 0 and 1 as the label's if it has none yet, else warns of them."""
    free = [position for position in _free(positions, table) if not table.numbers_rows(position)]
    flags = [position for position in free if column_values.are_flags(table.values(position))]
    varying = [position for position in flags if len(set(map(str, table.values(position)))) > 1]
    label = positions.get("label")
    if label is None:
        if len(varying) > 1 and len(table.rows) > 2 and ("text" in positions or len(flags) < len(free)):
            positions["label"] = tuple(flags)
    elif len(varying) + column_values.are_flags(table.values(label)) > 1:
        log.warn(f"{table.path}: the 0 and 1 in column {table.column(tuple(flags))} are not read; if "
                 f"these are labels, set --label_column={table.column((label, *flags))}")


def _check_more_labels(positions: Dict[str, Place], table: Table, is_named: bool) -> None:
    """Warns of columns with the very values of the label's; if all have the same two, raises a UserError."""
    label = positions["label"]
    if isinstance(label, tuple) or column_values.are_flags(table.values(label)):
        return
    distinct = set(map(str, table.values(label)))
    more = [position for position in _free(positions, table)
            if set(map(str, table.values(position))) == distinct]
    if more and len(distinct) == 2 and not is_named:
        raise UserError(f"{table.path}: columns {table.column((label, *more))} all have the values {sorted(distinct)}; "
                        "if each is a label, write 0 or 1 in all of them; if one is, name it with --label_column")
    if more and 1 < len(distinct) <= 20:
        log.warn(f"{table.path}: column {table.column(tuple(more))} has the same values as the label's, column "
                 f"{table.column(label)}, and is not read; if each is a label, write 0 or 1 in all of them")


def warn_of_unread(table: Table, free: Sequence[int], flag: str) -> None:
    """Warns of texts that are not read; in the `flag` that reads them, {} stands for the first column."""
    texts = [table.column(position) for position in free if column_values.holds_texts(table.values(position))]
    if texts:
        log.warn(f"{table.path}: the texts in column {', '.join(texts)} are not read; to read them, "
                 f"set {flag.format(texts[0])}")


def _find_by_name(positions: Dict[str, Place], role: str, table: Table) -> None:
    """Adds a free column with a common name as the role's, if the role has none yet."""
    if role not in positions:
        position = table.named(NAMES[role], role, _free(positions, table))
        positions.update({} if position is None else {role: position})


def _find_pair(positions: Dict[str, Place], table: Table) -> None:
    """Adds two free columns with the usual names of a pair, if they are not numbers."""
    free = [position for position in _free(positions, table)
            if not column_values.are_mostly_numbers(map(str, table.values(position)))]
    positions.update(zip(("text", "text_pair"), table.named_pair(PAIRS, free)))


def _are_no_second_texts(place: Optional[Place], table: Table) -> bool:
    """Whether the column repeats one value or, if its name may mean something else, a few short ones; logged."""
    values = [] if place is None else list(map(str, table.values(place)))
    if len(values) < 3 or len(set(values)) > 1 and not (
            table.column(place).lower() in _UNSURE_NAMES and column_values.are_classes(values)):
        return False
    log.info(f"{table.path}: column {table.column(place)} repeats {log.brief(repr(values[0]))}, so it is not taken for "
             f"second texts; if it has them, set --text_pair_column={table.column(place)}")
    return True


def _check_pair(positions: Dict[str, Place], table: Table, takes_pairs: bool) -> None:
    """Raises a UserError if the second text is missing, or given to a model of single texts."""
    if takes_pairs and table.width == 2 and not table.names:
        positions.setdefault("text_pair", 1 - positions.get("text", 0))
    if takes_pairs and "text_pair" not in positions:
        raise UserError(f"{table.path}: the model takes pairs of texts, and no column looks "
                        "like the second text; name it with --text_pair_column")
    if "text_pair" in positions and not takes_pairs:
        raise UserError(f"--text_pair_column={table.column(positions['text_pair'])}: the model takes "
                        "single texts")


def _find_by_values(positions: Dict[str, Place], role: str, table: Table,
                    rank: Callable[[List[Any]], Any]) -> None:
    """Adds the free column whose values rank lowest as the role's, if the role has none yet."""
    if role in positions:
        return
    free = _free(positions, table)
    free = [position for position in free if not table.is_partial(position)] or free
    if not free:
        raise UserError(f"{table.path}: no column is left for the {role} ({table.describe()}); "
                        f"name it with --{role}_column")
    rest = [position for position in free if not table.numbers_rows(position)]
    if len(rest) > (role == "label" and "text" not in positions):  # a column is left for the text
        free = rest
    positions[role] = min(free, key=lambda position: rank(table.values(position)))


def _report(table: Table, roles: Roles, known: Roles, free: Sequence[int], basis: str) -> None:
    """Logs the columns that are not `known`, if there are any, and those that are not read."""
    parts = [f"{role.replace('_', ' ')} in column {column}"
             for role, column in roles._asdict().items() if column and not getattr(known, role)]
    ways = [f"--{role}_column" for role, column in roles._asdict().items()
            if column and not getattr(known, role)]
    if parts and table.format != "jsonl":
        parts.insert(0, "a header line" if table.header else "no header line")
        ways.insert(0, "--header")
    if parts:
        for what, is_partial in (("not read", False), ("not read and only in some objects", True)):
            unread = [table.column(position) for position in free if table.is_partial(position) == is_partial]
            parts.extend([f"{what}: {log.brief(', '.join(unread))}"] if unread else [])
        log.info(f"{table.path}: {', '.join(parts)} ({basis}); to change that, set "
                 f"{' or '.join(ways)}")


def split_of(table: Table, roles: Roles) -> Split:
    """The file as a split; raises a UserError if two roles have the same column."""
    places = {role: table.place(column, role)
              for role, column in roles._asdict().items() if column}
    read = list(itertools.chain.from_iterable(map(_several, places.values())))
    if len(set(read)) < len(read):
        raise UserError(f"{table.path}: --text_column, --text_pair_column and --label_column must "
                        "be different columns")
    keys: Tuple[str, ...] = ()
    only = table.only if table.only and table.only[0] not in read else None
    if table.format == "jsonl":
        keys = tuple(table.names[position] for position in (*read, *(only or ())[:1]))
        only = only and (len(read), only[1])
        places = {role: tuple(map(read.index, place)) if isinstance(place, tuple)
                  else read.index(place) for role, place in places.items()}
    label = places.get("label")
    labels: Tuple[str, ...] = ()
    if isinstance(label, tuple):
        labels = (tuple(roles.label.split(",")) if table.names else written_labels.unnamed(len(label)))
    columns = Columns(tuple(places[role] for role in ("text", "text_pair") if role in places), label,
                      header=table.header, only=only, width=None if keys else table.width)
    return Split(table.path, columns, table.format, keys, labels)


def read_texts(path: Path, given: Roles, header: Optional[bool], odd: OddRows, *, takes_pairs: Optional[bool],
               trained: Optional[Trained] = None, kind: Optional[label_types.Kind] = None
               ) -> Tuple[Iterator[Example], int]:
    """The texts of a file or a part of one, and how many an example has; a `ReadFile`. See `find`."""
    table = table_head.read(os.fspath(path), header, names_of(trained))
    if odd.skips_lines and table.format == "csv":
        raise UserError(f"--skip_bad_lines: {path} is CSV, whose rows may have several lines; convert "
                        "it to UTF-8, for example with iconv")
    split = split_of(table, find(table, given, labelled=False, takes_pairs=takes_pairs, trained=trained, kind=kind))
    return read_split(split, "", odd=odd, part=path if isinstance(path, Part) else None), len(split.columns.texts)

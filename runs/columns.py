"""Finds the columns of texts and labels in a user's file: flags give some, the others are detected.

Detection goes by the names of the columns, then by the values in the first rows.
"""

import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from encoder import label_types
from engine import log
from engine.data.text_files import OddRows, Path
from engine.disk.parts import Part
from engine.errors import UserError
from runs import column_values, table_head
from runs.column_finder import Finder, Roles
from runs.rows import Example
from runs.table_head import NAMES, PAIRS, Table

ROLES = "text", "text_pair", "label"  # the label may have several columns of 0 and 1
_UNSURE_NAMES = ("answer", "response", "context", "document", "passage")  # of second texts, or of something else
_SEPARATORS = "columns are separated by tabs in .tsv and .txt, by commas in .csv"
_MAX_DISTINCT_SHARE = 0.9  # from this share on, the number of distinct values is not compared


class Trained(NamedTuple):
    """The columns of a training file, for the other files of the run, and for later commands."""
    text: str
    text_pair: Optional[str]
    label: str  # several have commas between
    header: Optional[bool]  # --header, if it was given
    width: int  # the number of columns

    def roles_in(self, table: Table) -> Dict[str, Sequence[str]]:
        """The roles that a file has columns for, found by name (in any case) or, in a file without header, by number.

        A file that has fewer columns than in training, by those of the label, lacks the label.
        """
        labels = [int(label) for label in self.label.split(",") if label.isdecimal()] or [self.width]
        lacking = self.width - table.width

        def columns_of(role: str, column: str) -> List[str]:
            column = table.spelling(column)
            several = [column] if column in table.names or role != "label" else column.split(",")
            if set(several) & set(table.names):  # of labels, whose classes have these very names
                return several
            if table.names or lacking not in (0, len(labels)) or not all(map(str.isdecimal, several)):
                return []
            left_out = labels if lacking else []
            return [str(number - sum(label < number for label in left_out)) for number in map(int, several)]

        roles = {role: columns_of(role, column) for role, column in zip(ROLES, self) if column}
        return {role: columns for role, columns in roles.items() if columns}


def names_of(trained: Optional[Trained]) -> List[str]:
    """The names of the columns of the training, in lower case; none of those with a number."""
    named = ",".join(filter(None, trained[:3])).lower().split(",") if trained else ()
    return [name for name in named if name and not name.isdecimal()]


def of_description(entry: Any, where: str) -> Trained:
    """The columns in the description of the model in `where`; raises a UserError if they are damaged."""
    kinds = dict(text=str, text_pair=(str, type(None)), label=str, header=(bool, type(None)), width=int)
    if not isinstance(entry, dict) or entry.keys() != kinds.keys() or not all(
            isinstance(entry[name], kind) for name, kind in kinds.items()):
        raise UserError(f"{where}: task.json is damaged: its columns are {str(entry)[:80]}")
    return Trained(**entry)


def find(table: Table, given: Roles, *, labelled: bool, takes_pairs: Optional[bool],
         trained: Optional[Trained] = None, kind: Optional[label_types.Kind] = None) -> Finder:
    """Finds the columns of a file: as the flags say, else as in training, else detected and logged.

    Args:
        given: those of the flags.
        labelled: whether the labels are read.
        takes_pairs: whether the model takes pairs of texts. None for a model that is not trained yet, or takes
            both: a column of second texts is then detected, unless a column of texts is given.
        trained: those of the training file.
        kind: how the trained model's labels are parsed.
    """
    if labelled and table.width < 2:
        hint = table.describe() if table.format == "jsonl" else (
            f"line 1 is {log.brief(repr(*(table.names or table.rows[0])))} (remove it if it is no row); {_SEPARATORS}")
        raise UserError(f"{table.path} has one column, and a text and a label are needed; {hint}")
    known = {**(trained.roles_in(table) if trained else {}), **given}
    for label in given.get("label", ()):
        known["label"] = [label] if label in table.names else list(map(str.strip, label.split(",")))
    finder = Finder(table, ROLES[:2 + labelled], known)
    if not (labelled or "text" in given or takes_pairs):
        check_commas(table, known.get("text"))
    if labelled:
        finder.find("label", NAMES["label"])
    _find_named_texts(finder, takes_pairs, known)
    if labelled and "label" not in known:
        is_named = bool(finder.places["label"])
        _find_flags(finder)
        _find_by_values(finder, "label", lambda values: (
            min(len(set(map(str, values))), _MAX_DISTINCT_SHARE * len(values)), column_values.mean_length(values)))
        _check_more_labels(finder, is_named)
    _find_by_values(finder, "text", lambda values: -column_values.mean_length(values))
    finder.check()
    by_number = not (labelled or "text" in given or table.names) and "text" in known
    if by_number and table.width > 1 and kind:
        _check_numbers(finder, known, kind)
    if table.header or table.width > 1:
        finder.report(given if by_number else known, "as in training" if by_number else "detected")
    if "text" not in known:
        more = "" if takes_pairs is False else ", or --text_pair_column={} for second texts"
        finder.warn_of_unread("--text_column" + more)
    return finder


def _find_named_texts(finder: Finder, takes_pairs: Optional[bool], known: Roles) -> None:
    """Finds the texts, one or a pair, by the names of their columns; raises a UserError if the model takes others."""
    places, table = finder.places, finder.table
    may_be_pairs = takes_pairs or takes_pairs is None and "text" not in known
    if may_be_pairs and not (places["text"] or places["text_pair"]):
        free = [position for position in finder.free  # numbers are no texts
                if not column_values.are_mostly_numbers(map(str, table.values(position)))]
        places.update((role, [place]) for role, place in zip(ROLES, table.named(PAIRS, "text", free)))
    finder.find("text", NAMES["text"])
    if may_be_pairs:
        finder.find("text_pair", NAMES["text_pair"])
    if not (takes_pairs or "text_pair" in known) and _are_no_second_texts(places["text_pair"], table):
        places["text_pair"] = []
    if table.width == 2 and not (table.names or places["text_pair"] or "label" in places) and may_be_pairs:
        places["text_pair"] = [1 - sum(places["text"])]
    if takes_pairs and not places["text_pair"]:
        raise UserError(f"{table.path}: the model takes pairs of texts, and no column looks "
                        "like the second text; name it with --text_pair_column")
    if takes_pairs is False and places["text_pair"]:
        raise UserError(f"--text_pair_column={table.column(*places['text_pair'])}: the model takes single texts")


def _check_numbers(finder: Finder, known: Roles, kind: label_types.Kind) -> None:
    """Raises a UserError if the columns of texts in training hold labels here; warns if that of labels holds none."""
    table = finder.table
    for role, places in finder.places.items():
        for column, values in zip(finder.columns(role), map(table.values, places)):
            if 2 * len(column_values.no_labels(kind, values)) < len(values):
                raise UserError(
                    f"{table.path}: column {column} had the texts in training, and has labels here, such as "
                    f"{log.brief(repr(values[0]))}; name the column of the texts with --{role}_column")
    column, *others = known.get("label", [""])
    label = table.position(column, "label") if column and not others else None
    values = table.values(label) if label in finder.free else []
    odd = column_values.no_labels(kind, values)
    if 2 * len(odd) > len(values) and (len(set(map(str, odd))) > 1 or column_values.holds_texts(odd)):
        log.warn(f"{table.path}: column {column} had the labels in training, and has others here, "
                 f"such as {log.brief(repr(odd[0]))}; it is not read: if it has the texts, set --text_column")


def check_commas(table: Table, trained_text: Sequence[str] = ()) -> None:
    """Raises a UserError if CSV without a header may hold a text a line, cut at its commas, or has no commas.

    Args:
        trained_text: the column of texts in training, if known: then only a file that looks like prose is refused.
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
            if str(position + 1) not in trained_text):
        return
    raise UserError(f"{table.path} is CSV without a header, so its {table.width} columns may be texts with commas. If "
                    "each line is a text, name the file .txt, or put quotes around each text; if not, give the column "
                    "of the text with --text_column, or a header line")


def _find_flags(finder: Finder) -> None:
    """Finds several free columns of 0 and 1 as the label's if it has none yet, else warns of them."""
    table, label = finder.table, finder.places["label"]
    free = [position for position in finder.free if not table.numbers_rows(position)]
    flags = [position for position in free if column_values.are_flags(table.values(position))]
    varying = [position for position in flags if len(set(map(str, table.values(position)))) > 1]
    if not label:
        if len(varying) > 1 and len(table.rows) > 2 and (finder.places["text"] or len(flags) < len(free)):
            finder.places["label"] = flags
    elif len(varying) + column_values.are_flags(table.values(*label)) > 1:
        log.warn(f"{table.path}: the 0 and 1 in column {table.column(*flags)} are not read; if "
                 f"these are labels, set --label_column={table.column(*label, *flags)}")


def _check_more_labels(finder: Finder, is_named: bool) -> None:
    """Warns of columns with the very values of the label's; if all have the same two, raises a UserError."""
    table, label = finder.table, finder.places["label"]
    if len(label) > 1 or column_values.are_flags(table.values(*label)):
        return
    distinct = set(map(str, table.values(*label)))
    more = [position for position in finder.free if set(map(str, table.values(position))) == distinct]
    if more and len(distinct) == 2 and not is_named:
        raise UserError(f"{table.path}: columns {table.column(*label, *more)} all have the values {sorted(distinct)}; "
                        "if each is a label, write 0 or 1 in all of them; if one is, name it with --label_column")
    if more and 1 < len(distinct) <= 20:
        log.warn(f"{table.path}: column {table.column(*more)} has the same values as the label's, column "
                 f"{table.column(*label)}, and is not read; if each is a label, write 0 or 1 in all of them")


def _are_no_second_texts(places: Sequence[int], table: Table) -> bool:
    """Whether the column repeats one value or, if its name may mean something else, a few short ones; logged."""
    column, values = table.column(*places), [str(value) for place in places for value in table.values(place)]
    if len(values) < 3 or len(set(values)) > 1 and not (
            column.lower() in _UNSURE_NAMES and column_values.are_classes(values)):
        return False
    log.info(f"{table.path}: column {column} repeats {log.brief(repr(values[0]))}, so it is not taken for second "
             f"texts; if it has them, set --text_pair_column={column}")
    return True


def _find_by_values(finder: Finder, role: str, rank: Callable[[List[Any]], Any]) -> None:
    """Finds the free column whose values rank lowest as the role's, if the role has none yet."""
    table, free = finder.table, finder.free
    free = [position for position in free if not table.is_partial(position)] or free
    rest = [position for position in free if not table.numbers_rows(position)]
    if len(rest) > (role == "label" and not finder.places["text"]):  # a column is left for the text
        free = rest
    if free and not finder.places[role]:
        finder.places[role] = [min(free, key=lambda position: rank(table.values(position)))]
    finder.check(role)


def read_texts(path: Path, given: Roles, header: Optional[bool], odd: OddRows, *, takes_pairs: Optional[bool],
               trained: Optional[Trained] = None, kind: Optional[label_types.Kind] = None
               ) -> Tuple[Iterator[Example], int]:
    """The texts of a file or a part of one, and how many an example has; a `ReadFile`. See `find`."""
    table = table_head.read(os.fspath(path), header, names_of(trained))
    if odd.skips_lines and table.format == "csv":
        raise UserError(f"--skip_bad_lines: {path} is CSV, whose rows may have several lines; convert it to UTF-8, for "
                        "example with iconv")
    split = find(table, given, labelled=False, takes_pairs=takes_pairs, trained=trained, kind=kind).split()
    return split.examples(odd=odd, part=path if isinstance(path, Part) else None), len(split.columns.texts)

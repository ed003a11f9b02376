"""The columns of a user's file by their roles: flags or a training name some, the others are found."""

import itertools
from typing import Container, Dict, Iterable, List, Mapping, Optional, Sequence

from absl import flags

from encoder import written_labels
from engine import log
from engine.errors import UserError
from runs import column_values
from runs.rows import Columns, Split
from runs.table_head import Table

HELP_TOPIC = "Data"  # of the flags defined here

Roles = Mapping[str, Sequence[str]]  # role → its columns, each by its name or its number, from 1; none if not given


def define_flags(values: flags.FlagValues, roles: Mapping[str, str], several: Container[str] = (), note: str = ""
                 ) -> None:
    """Defines --header, and flags such as --text_column.

    Args:
        roles: role → what its columns hold.
        several: the roles that may have several columns.
        note: ends the help of each flag.
    """
    for role, what in roles.items():
        define, default, more = ((flags.DEFINE_list, [], "; several have commas between") if role in several else
                                 (flags.DEFINE_string, None, ""))
        define(f"{role}_column", default, f"The column of {what}: its name, or its number from 1{more}; detected by "
               f"default.{note}", flag_values=values)
    flags.DEFINE_bool("header", None, f"Whether the first line names the columns; detected by default.{note}",
                      flag_values=values)


def of_flags(values: flags.FlagValues, *roles: str) -> Dict[str, Sequence[str]]:
    """The columns that flags such as --text_column name; their roles are the names of the flags."""
    given = {role: values[f"{role}_column"].value for role in roles}
    return {role: [columns] if isinstance(columns, str) else columns for role, columns in given.items() if columns}


class Finder:
    """Finds the columns of each role.

    Attributes:
        table: the first rows of the file.
        places: role → its columns, counted from 0; none if they are not found yet, or not there.
    """

    def __init__(self, table: Table, roles: Iterable[str], given: Roles):
        """Starts from the columns that are given for one of the roles."""
        self.table = table
        self.places = {role: [table.position(column, role) for column in given.get(role) or ()] for role in roles}

    @property
    def free(self) -> List[int]:
        """The columns without a role."""
        taken = {*itertools.chain(*self.places.values()), *(self.table.only or ())[:1]}
        return [position for position in range(self.table.width) if position not in taken]

    def columns(self, role: str) -> List[str]:
        """The columns of a role, each by its name or its number."""
        return list(map(self.table.column, self.places.get(role, ())))

    def find(self, role: str, *common: Sequence[str], among: Optional[Sequence[int]] = None) -> None:
        """Finds the columns of a role by common names, if it has none: for each list of names one, if it is there.

        Args:
            common: lists of names, the likeliest first.
            among: the columns to look at; by default those without a role.
        """
        among = self.free if among is None else among
        self.places[role] = self.places[role] or [
            place for names in common for place in self.table.named(zip(names), role, among)]

    def check(self, *needed: str) -> None:
        """Raises a UserError if a needed role has no column, or a column is there twice."""
        table = self.table
        for role in needed:
            if not self.places[role]:
                raise UserError(f"{table.path}: found no column for the {role} ({table.describe()}); "
                                f"name it with --{role}_column")
        read = list(itertools.chain(*self.places.values()))
        twice = {place for place in read if read.count(place) > 1}
        if twice:
            names = ", ".join(f"--{role}_column" for role, places in self.places.items() if twice & set(places))
            raise UserError(f"{table.path}: {names} must name different columns; {table.describe()}")

    def report(self, known: Roles, basis: str = "detected", what: str = "") -> None:
        """Logs `what`, the columns of roles outside `known`, and the unread columns."""
        table = self.table
        ways = {f"--{role}_column": f"{role.replace('_', ' ')} in column {','.join(self.columns(role))}"
                for role, places in self.places.items() if places and not known.get(role)}
        if ways and table.format != "jsonl":
            ways = {"--header": "a header line" if table.header else "no header line", **ways}
        parts = list(ways.values())
        for state, is_partial in (("not read", False), ("not read and only in some objects", True)) if parts else ():
            unread = [table.column(position) for position in self.free if table.is_partial(position) == is_partial]
            parts.extend([f"{state}: {log.brief(', '.join(unread))}"] if unread else [])
        guess = f"{', '.join(parts)} ({basis}); to change that, set {' or '.join(ways)}" if ways else ""
        if what or guess:
            log.info(": ".join(filter(None, (table.path, what, guess))))

    def warn_of_unread(self, flag: str) -> None:
        """Warns of texts that are not read; in the `flag` that reads them, {} stands for the first column."""
        texts = [self.table.column(position) for position in self.free
                 if column_values.holds_texts(self.table.values(position))]
        if texts:
            log.warn(f"{self.table.path}: the texts in column {', '.join(texts)} are not read; to read them, "
                     f"set {flag.format(texts[0])}")

    def split(self, labelled: bool = True) -> Split:
        """The file, read as the texts of all other roles and, if it is `labelled`, the label."""
        table, places = self.table, {**self.places}
        labels = places.pop("label", []) * labelled
        texts = list(itertools.chain(*places.values()))
        read, keys = [*texts, *labels], ()
        names = tuple(self.columns("label")) if table.names else written_labels.unnamed(len(labels))
        only = table.only if table.only and table.only[0] not in read else None
        if table.format == "jsonl":  # the columns are the keys that are read
            keys = tuple(table.names[position] for position in (*read, *(only or ())[:1]))
            only = only and (len(read), only[1])
            texts, labels = range(len(texts)), range(len(texts), len(read))
        label = tuple(labels) if len(labels) > 1 else next(iter(labels), None)
        columns = Columns(tuple(texts), label, header=table.header, only=only, width=None if keys else table.width)
        return Split(table.path, columns, table.format, keys, names if len(labels) > 1 else ())

"""Streams the examples of files of rows, and checks each row."""

import collections
from typing import Any, Callable, Counter, Iterator, List, NamedTuple, Optional, Tuple, Union

from encoder.label_types import Kind
from engine import log
from engine.data import text_files
from engine.data.text_files import OddRows, Unread, attempt
from engine.disk import files, provenance
from engine.disk.parts import Part
from engine.errors import UserError
from runs import table_head


class Columns(NamedTuple):
    """The columns of an example; counted from 0, negative ones from the end."""
    texts: Tuple[int, ...]
    label: Union[None, int, Tuple[int, ...]] = None  # several: 0 or 1 in each
    header: bool = True  # whether the first line names the columns
    only: Optional[Tuple[int, str]] = None  # keep only rows with this value in this column
    skip_short_rows: bool = False  # the published file has broken rows: skip them with a warning
    width: Optional[int] = None  # number of columns that each row must have; None: any

    def facts(self) -> List[Any]:
        """What identifies them, as JSON values; of one text or two as stores and runs of 1.0 have it."""
        return [*self.texts, *[None] * (2 - len(self.texts)), *self[1:]]


class Split(NamedTuple):
    """One file of a task."""
    file: str  # in a row of the table of tasks, relative to --data_dir
    columns: Columns
    format: str = "tsv"  # one of text_files.FORMATS
    keys: Tuple[str, ...] = ()  # the keys of a JSON object that are its columns
    labels: Tuple[str, ...] = ()  # the names of several columns of labels
    more_labels: Tuple[str, ...] = ()  # that the training file does not have

    def content(self, store_dir: str) -> List[Any]:
        """What identifies what is read, as JSON values. `store_dir`: see `provenance.content_hash`."""
        path = files.require_file(self.file, "the task's file")
        return [provenance.content_hash(path, store_dir), self.columns.facts(), self.keys, self.format]

    def examples(self, kind: Optional[Kind] = None, *, odd: Optional[OddRows] = None, part: Optional[Part] = None,
                 second: str = "second text") -> Iterator["Example"]:
        """Streams the examples; in the end warns of skipped rows and empty texts, and counts those left out.

        Args:
            kind: what the labels are; not needed for a file without labels.
            odd: counts the rows that are not as the split says, which come as `Unread`.
            part: of the file, which may hold none.
            second: what the second text is, for the warning.
        """
        path = self.file
        skipped: Counter[str] = collections.Counter()
        left_out: Counter[str] = collections.Counter()
        count = num_empty = 0
        halves = [0, 0]  # examples without a first, and without another text
        for _, _, example in read_rows(kind, self, odd, skipped, part, left_out):
            count += 1
            is_blank = [not text.strip() for text in example.texts] if example else [False]
            num_empty += all(is_blank)
            if any(is_blank) and not all(is_blank):
                halves[not is_blank[0]] += 1
            yield example
        for what, number in skipped.items():
            log.warn(f"{path}: skipped {number} {what}")
        if left_out:
            log.info(f"{path}: {describe_left_out(count, self.columns.only[1], left_out)}")
        if num_empty:
            log.warn(f"{path}: {num_empty} examples have an empty text")
        for what, number in zip(("first text", second), halves):
            if number:
                log.warn(f"{path}: {number:,} of {count:,} pairs have an empty {what}")
        if not count and not part:
            raise UserError(f"{path} holds no examples")


class Example(NamedTuple):
    """Texts that a model reads together, with their label as `Kind.parse` returns it; None in a test set."""
    texts: Tuple[str, ...]
    label: Any = None


# Line number, from 1; fields (in JSON only those that the task reads); example.
ParsedRow = Tuple[int, Union[List[str], Unread], Union[Example, Unread]]


def describe_left_out(count: int, kept: str, left_out: Counter[str]) -> str:
    """Which rows are examples, and how many others have which values in the column that decides it."""
    others = ", ".join(f"{number:,} {value!r}" for value, number in left_out.most_common())
    return f"the {count:,} examples are those with {kept!r}; left out: {log.brief(others)}"


def read_rows(kind: Optional[Kind], split: Split, odd: Optional[OddRows] = None,
              skipped: Optional[Counter[str]] = None, part: Optional[Part] = None,
              left_out: Optional[Counter[str]] = None) -> Iterator[ParsedRow]:
    """Streams the rows of a file that hold an example: their fields, and the example.

    Args:
        odd: see `Split.examples`.
        skipped: counts the rows that are left out, by the reason.
        part: of the file.
        left_out: counts the rows that `split.columns.only` leaves out, by their values.
    """
    path = part or split.file
    parse = _parser(kind, split, str(path), collections.Counter() if skipped is None else skipped,
                    collections.Counter() if left_out is None else left_out)
    label = split.columns.label
    if split.format == "jsonl":
        list_key = split.keys[label] if isinstance(label, int) and kind.takes_lists else None
        rows = text_files.json_rows(path, split.keys, list_key, odd)
    else:
        rows = (text_files.csv_rows(path) if split.format == "csv"
                else text_files.tsv_rows(path, odd))
        if split.columns.header and not (part and part.start):
            _check_header(next(rows, (1, None))[1], split.columns, str(path))
    for line_number, fields in rows:
        example = fields if isinstance(fields, Unread) else attempt(odd, parse, line_number, fields)
        if example is not None:
            yield line_number, fields, example


def _check_header(names: Optional[List[str]], columns: Columns, path: str) -> None:
    """Raises a UserError if a task's texts are in columns that the file names as the label or as numbers of rows."""
    for position in columns.texts if names and columns.width is None else ():
        if names[position:position + 1] and names[position].strip().lower() in ("label", *table_head.NUMBERS):
            raise UserError(f"{path}, line 1: column {position + 1} is {names[position]!r}, and the task reads a text "
                            "there, as GLUE's files have it; --task_name=file finds columns by their names")


def _parser(kind: Optional[Kind], split: Split, path: str, skipped: Counter[str], left_out: Counter[str]
            ) -> Callable[[int, List[str]], Optional[Example]]:
    """What turns the number and the fields of a row into its example; None for one to skip."""
    columns = split.columns
    labels = columns.label if isinstance(columns.label, tuple) else (columns.label,)
    positions = (*columns.texts, *labels, columns.only and columns.only[0])
    num_columns = max(position + 1 if position >= 0 else -position
                      for position in positions if position is not None)
    wanted = (
        f"the task needs at least {num_columns} (tab-separated)" if columns.width is None
        else f"the file's first line has {columns.width}; "
        + ("a text with commas or line ends needs quotes around it" if split.format == "csv"
           else "a text can hold no tab and no line end"))

    def parse(line_number: int, fields: List[str]) -> Optional[Example]:
        is_short = len(fields) < num_columns
        if columns.skip_short_rows and is_short:
            skipped["rows with too few columns; the published file has such rows"] += 1
            return None
        if columns.width not in (None, 1) and len(fields) == 1 and not fields[0].strip():
            skipped["blank lines"] += 1
            return None
        if is_short or columns.width not in (None, len(fields)):
            raise UserError(f"{path}, line {line_number}: {len(fields)} columns, and {wanted}")
        if columns.only and fields[columns.only[0]] != columns.only[1]:
            left_out[fields[columns.only[0]]] += 1
            return None
        label = (None if columns.label is None else fields[columns.label] if not split.labels else
                 {name: fields[position] for name, position in zip(split.labels, columns.label)})
        try:
            return Example(tuple(fields[position] for position in columns.texts),
                           None if label is None else kind.parse(label))
        except ValueError as error:
            raise UserError(f"{path}, line {line_number}: the label is {log.brief(repr(label))}, "
                            f"and must be {error}") from error
    return parse

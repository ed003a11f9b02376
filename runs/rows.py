"""Streams the examples of files of rows, and checks each row."""

import os
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from engine import log
from engine.data import text_files
from engine.data.odd_rows import OddRows, attempt
from engine.errors import UserError
from runs.label_types import Kind


class Columns(NamedTuple):
    """The columns of an example; counted from 0, negative ones from the end."""
    text_a: int
    text_b: Optional[int] = None
    label: Optional[int] = None
    header: bool = True  # whether the first line names the columns
    only: Optional[Tuple[int, str]] = None  # keep only rows with this value in this column
    skip_short_rows: bool = False  # the published file has broken rows: skip them with a warning
    width: Optional[int] = None  # number of columns that each row must have; None: any


class Split(NamedTuple):
    """One file of a task."""
    file: str  # relative to --data_dir, or absolute
    columns: Columns
    format: str = "tsv"  # one of text_files.FORMATS
    keys: Tuple[str, ...] = ()  # the keys of a JSON object that are its columns


class Example(NamedTuple):
    """A text or a pair of texts, with its label as `Kind.parse` returns it; None in a test set."""
    text_a: str
    text_b: Optional[str]
    label: Any


# In the place of a row that cannot be read; every model reads it.
UNREAD = Example("?", "?", None)

# Line number, from 1; fields (in JSON only those that the task reads); example.
ParsedRow = Tuple[int, List[str], Example]


def read_split(split: Split, data_dir: str, kind: Optional[Kind] = None, *,
               is_first_look: bool = False, odd: Optional[OddRows] = None) -> Iterator[Example]:
    """Streams the examples of a file.

    Args:
        odd: counts the rows that are not as the split says, which come as UNREAD.
        kind: what the labels are; not needed for a file without labels.
        is_first_look: the file will be read again. Warnings about odd rows are left for then.

    Raises:
        UserError: with file and line number, for anything that is not as the split says;
            also if the file holds no example.
    """
    path = os.path.join(data_dir, split.file)
    parser = _Parser(kind, split, path)
    count = 0
    for _, _, example in _parsed(parser, split, path, odd):
        count += 1
        yield example
    if not is_first_look:
        parser.report()
    if not count:
        raise UserError(f"{path} holds no examples")


def read_rows(kind: Kind, split: Split, data_dir: str) -> Iterator[ParsedRow]:
    """Streams the rows of a file that hold an example, as fields and parsed."""
    path = os.path.join(data_dir, split.file)
    yield from _parsed(_Parser(kind, split, path), split, path)


def _parsed(parser: "_Parser", split: Split, path: str,
            odd: Optional[OddRows] = None) -> Iterator[ParsedRow]:
    for line_number, fields in _rows(parser.kind, split, path, odd):
        example = UNREAD if fields is None else attempt(
            odd, UNREAD, parser.parse, line_number, fields)
        if example:
            yield line_number, fields, example


def _rows(kind: Optional[Kind], split: Split, path: str,
          odd: Optional[OddRows]) -> Iterator[text_files.Row]:
    label = split.columns.label
    if split.format == "jsonl":
        list_key = split.keys[label] if label is not None and kind.separator else None
        yield from text_files.json_rows(path, split.keys, list_key, odd)
        return
    rows = text_files.csv_rows(path) if split.format == "csv" else text_files.tsv_rows(path)
    for index, row in enumerate(rows):
        if index or not split.columns.header:
            yield row


class _Parser:
    """Turns the fields of a row into an Example."""

    def __init__(self, kind: Optional[Kind], split: Split, path: str):
        self._columns = columns = split.columns
        self._path = path
        self.kind = kind
        positions = [columns.text_a, columns.text_b, columns.label,
                     columns.only and columns.only[0]]
        self._num_columns = max(
            position + 1 if position >= 0 else -position
            for position in positions if position is not None)
        self._hint = ("a text with commas or line ends needs quotes around it"
                      if split.format == "csv" else "a text can hold no tab and no line end")
        self._short_rows = self._blank_rows = self._empty_texts = 0

    def parse(self, line_number: int, fields: List[str]) -> Optional[Example]:
        """The example of a row; None if the row is skipped."""
        columns = self._columns
        if columns.width is not None:
            if columns.width > 1 and len(fields) == 1 and not fields[0].strip():
                self._blank_rows += 1
                return None
            if len(fields) != columns.width:
                raise UserError(f"{self._path}, line {line_number}: {len(fields)} columns, and "
                                f"the file's first line has {columns.width}; {self._hint}")
        if len(fields) < self._num_columns:
            if columns.skip_short_rows:
                self._short_rows += 1
                return None
            raise UserError(f"{self._path}, line {line_number}: {len(fields)} columns, and the "
                            f"task needs at least {self._num_columns} (tab-separated)")
        if columns.only and fields[columns.only[0]] != columns.only[1]:
            return None
        example = Example(
            fields[columns.text_a],
            None if columns.text_b is None else fields[columns.text_b],
            None if columns.label is None else self._label(fields[columns.label], line_number))
        self._empty_texts += not (example.text_a.strip() or (example.text_b or "").strip())
        return example

    def report(self) -> None:
        """Warns of skipped rows and empty texts."""
        if self._short_rows:
            log.warn(f"{self._path}: skipped {self._short_rows} rows with too few columns; the "
                     "published file of this task has such rows")
        if self._blank_rows:
            log.warn(f"{self._path}: skipped {self._blank_rows} blank lines")
        if self._empty_texts:
            log.warn(f"{self._path}: {self._empty_texts} examples have an empty text")

    def _label(self, text: str, line_number: int) -> Any:
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise UserError(f"{self._path}, line {line_number}: the label is {brief(text)}, and "
                            f"must be {error}") from error


def brief(value: Any) -> str:
    """The value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

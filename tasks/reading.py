"""From a task's files to examples: tab-separated lines, checked as they stream by."""

import math
import os
from typing import Iterator, List, NamedTuple, Optional, Tuple, Union

from engine import log
from engine.errors import UserError
from tasks.table import Columns, Split, Task


class Example(NamedTuple):
    """One text or pair of texts. `label` is a class index, a number, or None in a test set."""
    text_a: str
    text_b: Optional[str]
    label: Optional[Union[int, float]]


def read_examples(task: Task, split: Split, data_dir: str) -> Iterator[Example]:
    """Streams the examples of one of the task's files.

    Raises:
        UserError: with file and line number, for anything that is not as the task's
            row says; also where the file holds no example.
    """
    path = os.path.join(data_dir, split.file)
    parser = _Parser(task, split.columns, path)
    count = 0
    for line_number, fields in _rows(path, split.columns.header):
        example = parser.parse(line_number, fields)
        if example:
            count += 1
            yield example
    if parser.short_rows:
        log.warn(f"{path}: skipped {parser.short_rows} rows with too few columns, as the "
                 "published file of this task has some")
    if not count:
        raise UserError(f"{path} holds no examples")


def _rows(path: str, header: bool) -> Iterator[Tuple[int, List[str]]]:
    """Line numbers, from 1, and tab-separated fields. No quoting: quotes are text."""
    try:
        # Bytes: only "\n" ends a line, and other line ends of Unicode are text.
        with open(path, "rb") as file:
            for line_number, line in enumerate(file, start=1):
                if line_number > 1 or not header:
                    yield line_number, _decode(path, line_number, line).split("\t")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _decode(path: str, line_number: int, line: bytes) -> str:
    try:
        text = line.decode("utf-8-sig" if line_number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {line_number}: not UTF-8 ({error.reason}); convert the "
                        "file, for example with iconv") from error
    return text.rstrip("\r\n")


class _Parser:
    """Turns the fields of a line into an Example."""

    def __init__(self, task: Task, columns: Columns, path: str):
        self._columns = columns
        self._path = path
        self._expected_label = (
            "a finite number" if task.is_regression else f"one of {', '.join(task.labels)}")
        self._is_regression = task.is_regression
        self._labels = {label: index for index, label in enumerate(task.labels)}
        for alias, label in task.label_aliases:
            self._labels[alias] = self._labels[label]
        positions = [columns.text_a, columns.text_b, columns.label,
                     columns.only and columns.only[0]]
        self._num_columns = max(
            position + 1 if position >= 0 else -position
            for position in positions if position is not None)
        self.short_rows = 0

    def parse(self, line_number: int, fields: List[str]) -> Optional[Example]:
        """The example of a line; None for one that the task leaves out."""
        columns = self._columns
        if len(fields) < self._num_columns:
            if columns.skip_short_rows:
                self.short_rows += 1
                return None
            raise UserError(f"{self._path}, line {line_number}: {len(fields)} columns, and the "
                            f"task needs at least {self._num_columns} (tab-separated)")
        if columns.only and fields[columns.only[0]] != columns.only[1]:
            return None
        return Example(
            fields[columns.text_a],
            None if columns.text_b is None else fields[columns.text_b],
            None if columns.label is None else self._label(fields[columns.label], line_number))

    def _label(self, text: str, line_number: int) -> Union[int, float]:
        try:
            label = float(text) if self._is_regression else self._labels[text]
            if math.isfinite(label):
                return label
        except (KeyError, ValueError):
            pass
        raise UserError(f"{self._path}, line {line_number}: the label is {text!r}, and it must "
                        f"be {self._expected_label}")

"""Rows of a task's file with other texts in them, in the format that the task reads.

All columns are kept. Tab-separated files have no quoting; in CSV a field is quoted if it
must be.
"""

import csv
import io
import json
import os
from typing import Any, Iterator, List, NamedTuple, Optional

from engine.data import text_files
from engine.data.parts import Part
from runs.rows import Example, Split, read_rows
from tasks.table import Task


class Row(NamedTuple):
    """A row of a task's file."""
    line_number: int  # from 1
    example: Example
    fields: Any  # a list of texts, or the object of a JSON line
    split: Split

    @property
    def texts(self) -> List[str]:
        """Its text, or both texts of a pair."""
        return [text for text in (self.example.text_a, self.example.text_b) if text is not None]

    def with_texts(self, text_a: str, text_b: Optional[str]) -> str:
        """This row with these texts in it, as the file has it: one line, in CSV maybe several."""
        columns, is_json = self.split.columns, self.split.format == "jsonl"
        fields = self.fields.copy()
        for column, text in ((columns.text_a, text_a), (columns.text_b, text_b)):
            if column is not None:
                fields[self.split.keys[column] if is_json else column] = text
        return line_of(fields, self.split.format)


def line_of(fields: Any, form: str) -> str:
    """A row of a file of this format, with its line end."""
    if form == "jsonl":
        return text_files.whole_characters(json.dumps(fields, ensure_ascii=False)) + "\n"
    if form == "tsv":
        return "\t".join(fields) + "\n"
    line = io.StringIO()
    csv.writer(line).writerow(fields)  # quotes a field with \r only if its own line end has one
    return line.getvalue()[:-len("\r\n")] + "\n"


def header_of(split: Split, data_dir: str) -> str:
    """The line that names the columns; empty if the file has none."""
    if split.format == "jsonl" or not split.columns.header:
        return ""
    path = os.path.join(data_dir, split.file)
    rows = text_files.csv_rows(path) if split.format == "csv" else text_files.tsv_rows(path)
    return line_of(next(rows)[1], split.format)


def rows_of(task: Task, split: Split, data_dir: str, part: Optional[Part] = None) -> Iterator[Row]:
    """Streams the rows of a file, or of a part of it, that hold an example."""
    objects = text_files.json_objects(part or os.path.join(data_dir, split.file))
    for line_number, fields, example in read_rows(task.kind, split, data_dir, part=part):
        if split.format == "jsonl":  # with the keys that the task does not read
            _, fields = next(objects)
        yield Row(line_number, example, fields, split)

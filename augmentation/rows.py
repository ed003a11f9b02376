"""Rows of a task's file with other texts in them, in the format that the task reads.

All columns are kept. Tab-separated files have no quoting; in CSV a field is quoted if it
must be.
"""

import csv
import io
import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

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

    def with_texts(self, text_a: str, text_b: Optional[str]) -> str:
        """This row with these texts in it, as the file has it: one line, in CSV maybe several."""
        columns, fields = self.split.columns, self.fields
        texts = {columns.text_a: text_a}
        if columns.text_b is not None:
            texts[columns.text_b] = text_b
        if self.split.format == "jsonl":
            return _json_line({**fields, **{self.split.keys[column]: text
                                            for column, text in texts.items()}})
        fields = list(fields)
        for column, text in texts.items():
            fields[column] = text
        return line_of(fields, self.split.format)


def line_of(fields: List[str], form: str) -> str:
    """A row of a tab-separated or CSV file, with its line end."""
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
    rows = read_rows(task.kind, split, data_dir, part=part)
    if split.format != "jsonl":
        for line_number, fields, example in rows:
            yield Row(line_number, example, fields, split)
        return
    objects = text_files.json_objects(part or os.path.join(data_dir, split.file))
    for (line_number, _, example), (_, value) in zip(rows, objects):
        yield Row(line_number, example, value, split)


def _json_line(value: Dict[str, Any]) -> str:
    return text_files.whole_characters(json.dumps(value, ensure_ascii=False)) + "\n"

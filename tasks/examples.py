"""Streams the examples of a task: those of its files, or of a user's processor."""

import os
from typing import Any, Iterator, Optional, Union

from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from runs.label_types import Kind
from runs.rows import Example, Split, brief, read_split
from tasks import processors
from tasks.table import Task

AnySplit = Union[Split, processors.ProcessorSplit]


def read_examples(task: Task, split: AnySplit, data_dir: str) -> Iterator[Example]:
    """Streams the examples of one of the task's files; see `rows.read_split`."""
    if isinstance(split, processors.ProcessorSplit):
        yield from _processed(split, data_dir, task.kind)
    else:
        yield from read_split(split, data_dir, task.kind)


def content_hash(split: AnySplit, data_dir: str, memory_path: str) -> str:
    """Identifies a set's content. `memory_path`: see `files.content_hash`."""
    if isinstance(split, processors.ProcessorSplit):
        return processors.digest(split, data_dir)
    path = files.require_file(os.path.join(data_dir, split.file), "the task's file")
    return files.content_hash(path, memory_path)


def _processed(split: processors.ProcessorSplit, data_dir: str,
               kind: Optional[Kind]) -> Iterator[Example]:
    for example in processors.examples_of(split, data_dir):
        label = None
        if split.columns.label is not None:
            try:
                label = kind.parse(str(example.label))
            except ValueError as error:
                raise UserError(f"--processor: the label of {split.file} example {example.guid!r} "
                                f"is {example.label!r}, and must be {error}") from error
        yield Example(_text(split, example, example.text_a),
                      None if example.text_b is None else _text(split, example, example.text_b),
                      label)


def _text(split: processors.ProcessorSplit, example: Any, text: Any) -> str:
    if not isinstance(text, str):
        raise UserError(f"--processor: {split.file} example {example.guid!r} has {brief(text)} "
                        "instead of a text")
    return text_files.whole_characters(text)

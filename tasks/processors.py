"""Data processors with Google's interface: users' own classes that read examples."""

import csv
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Type

import tensorflow.compat.v1 as tf

import tokenization
from encoder import label_types
from engine import log
from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from runs.rows import Columns, Example
from tasks import metrics as scores
from tasks.table import Task


class InputExample:
    """One example of a data processor: a text or two, and the name of a label."""

    def __init__(self, guid: str, text_a: str, text_b: Optional[str] = None,
                 label: Optional[str] = None):
        self.guid = guid
        self.text_a = text_a
        self.text_b = text_b
        self.label = label


class DataProcessor:
    """Base class of the users' data processors; a run calls the methods of the sets it needs."""

    def get_train_examples(self, data_dir: str) -> List[InputExample]:
        """The training set, read from `data_dir`."""
        raise NotImplementedError()

    def get_dev_examples(self, data_dir: str) -> List[InputExample]:
        """The dev set, read from `data_dir`."""
        raise NotImplementedError()

    def get_test_examples(self, data_dir: str) -> List[InputExample]:
        """The test set, read from `data_dir`; its labels are not used."""
        raise NotImplementedError()

    def get_labels(self) -> List[str]:
        """The names of all labels, in the order of the model's outputs."""
        raise NotImplementedError()

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: Optional[str] = None) -> List[List[str]]:
        """The rows of a tab-separated file; quotes are text, unless `quotechar` says otherwise.

        As in Google's code, a blank line is a row without fields.
        """
        if quotechar:
            lines = (line + "\n" for _, line in text_files.lines(input_file))
            return list(csv.reader(lines, delimiter="\t", quotechar=quotechar))
        return [[] if fields == [""] else fields
                for _, fields in text_files.tsv_rows(input_file)]


class ProcessorSplit(NamedTuple):
    """One set of a data processor, with the methods of a `Split`."""
    processor: Any
    data_dir: str
    name: str  # "train", "dev" or "test"
    columns: Columns  # whether there are labels
    more_labels = ()

    @property
    def file(self) -> str:
        """Stands for its source, in messages and in the name of the store."""
        return os.path.join(self.data_dir, self.name)

    def content(self, store_dir: str) -> List[Any]:
        """A hash of the examples that the processor returned, as JSON values."""
        content = hashlib.sha256()
        for example in _examples_of(self):
            content.update(json.dumps([example.text_a, example.text_b, str(example.label)],
                                      default=repr).encode("utf-8"))
        return [content.hexdigest(), self.columns.facts(), (), "processor"]

    def examples(self, kind: label_types.Kind) -> Iterator[Example]:
        """The examples, their labels checked."""
        for example in _examples_of(self):
            label = None
            if self.columns.label is not None:
                try:
                    label = kind.parse(str(example.label))
                except ValueError as error:
                    raise UserError(f"--processor: the label of {self.name} example {example.guid!r} "
                                    f"is {example.label!r}, and must be {error}") from error
            texts = (example.text_a,) if example.text_b is None else (example.text_a, example.text_b)
            try:
                texts = tuple(text_files.whole_characters(tokenization.convert_to_unicode(text)) for text in texts)
            except ValueError as error:  # pandas has NaN for an empty cell
                raise UserError(f"--processor: {self.name} example {example.guid!r} has no text: its texts are "
                                f"{log.brief(repr(texts))}") from error
            yield Example(texts, label)


@functools.lru_cache(maxsize=1)  # called twice in a row: for the digest, and for the examples
def _examples_of(split: ProcessorSplit) -> List[Any]:
    """The examples that the processor returns. Raises a UserError if there are none."""
    name = f"get_{split.name}_examples"
    try:
        examples = list(getattr(split.processor, name)(split.data_dir))
    except (OSError, tf.errors.OpError) as error:  # tf.gfile raises the last
        raise UserError(f"--processor: {name}: {error}") from error
    if not examples:
        raise UserError(f"--processor: {name}({split.data_dir!r}) returned nothing")
    return examples


def make_task(specification: str, data_dir: str) -> Task:
    """The task of `--processor=path/to/file.py:ClassName`. A mistake in that file has its traceback."""
    processor = _load(specification)()
    # For a regression, processors return no labels or [None].
    labels = tuple(str(name).strip() for name in processor.get_labels() or () if name is not None)
    label_types.check_labels(labels, f"--processor={specification}: get_labels()")
    labelled, unlabelled = Columns(texts=(0,), label=1), Columns(texts=(0,))
    metrics = (scores.accuracy, scores.macro_f1) if labels else (scores.pearson, scores.spearman, scores.r2)
    kind = label_types.SingleLabel(labels) if labels else label_types.Regression()
    return Task(kind, metrics, *(
        ProcessorSplit(processor, data_dir, name, labelled if name != "test" else unlabelled)
        for name in ("train", "dev", "test")))


def _load(specification: str) -> Type:
    path, _, class_name = specification.rpartition(":")
    if not path:
        raise UserError(f"--processor={specification}: must be path/to/file.py:ClassName")
    loader = importlib.machinery.SourceFileLoader(
        "processor_of_the_user", files.require_file(path, "--processor"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # dataclasses look up the module of their class there
    loader.exec_module(module)
    if not hasattr(module, class_name):
        raise UserError(f"--processor={specification}: {path} has no class {class_name!r}")
    return getattr(module, class_name)

"""A command that would work, and what is done to its files and flags so that it must be refused."""

import json
import os
import pathlib
import re
from typing import Callable, NamedTuple, Tuple

import numpy as np

from commands import Flags, ends_with_error, run_here
from conftest import checkpoint_values
from engine.checkpoints import checkpoints

import tensorflow.compat.v1 as tf

HEADER = "label\ttext\n"
GOOD = "yes\tthe cat\nno\ta dog\n" * 10  # lines 2 to 21, below the header
CSV_HEADER = "label,text\n"
CSV_GOOD = GOOD.replace("\t", ",")
JSON_GOOD = '{"label": "yes", "text": "the cat"}\n{"label": "no", "text": "a dog"}\n'
DATA = "bert_model.ckpt.data-00000-of-00001"

PROCESSOR = """from run_classifier import DataProcessor, InputExample

class Mine(DataProcessor):
    def get_labels(self):
        return ["no", "yes"]

    def get_train_examples(self, data_dir):
        return [InputExample("t-1", "the cat", None, "yes"),
                InputExample("t-2", "a dog", None, "no")] * 10

    def get_dev_examples(self, data_dir):
        return self.get_train_examples(data_dir)
"""


class Case(NamedTuple):
    """What is done to a good command and its files, and what the line must then say."""
    damage: Callable[[pathlib.Path, Flags], None]
    mentions: Tuple[str, ...]


def flags_set(**changes) -> Callable:
    """Sets flags, or leaves those out that are None; {} in a value is the command's folder."""
    def damage(folder, flags):
        for name, value in changes.items():
            flags[name] = value.format(folder) if isinstance(value, str) else value
    return damage


def missing(name: str) -> Callable:
    return lambda folder, flags: (folder / name).unlink()


def content(name: str, text) -> Callable:
    def damage(folder, flags):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return damage


def directory(name: str) -> Callable:
    def damage(folder, flags):
        (folder / name).unlink()
        (folder / name).mkdir()
    return damage


def in_turn(*damages: Callable) -> Callable:
    def damage(folder, flags):
        for each in damages:
            each(folder, flags)
    return damage


def assert_refused(case: Case, folder: pathlib.Path, flags: Flags, capsys) -> None:
    """The case's command ends in one line with status 2, and leaves nothing half-written."""
    case.damage(folder, flags)
    with ends_with_error(capsys, *case.mentions):
        run_here(flags)
    assert_nothing_half_written(folder / "out")


def assert_nothing_half_written(folder: pathlib.Path) -> None:
    left = [os.path.join(parent, name) for parent, folders, names in os.walk(str(folder))
            for name in folders + names]
    bad = [path for path in left
           if re.search(r"tmp-|run\.json|model\.ckpt|checkpoint$|results|predict", path)]
    assert not bad


def cut(name: str, share: float) -> Callable:
    """Leaves the first part of a file, as a copy that broke off."""
    def damage(folder, flags):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:int(len(content) * share)])
    return damage


def config(**changes) -> Callable:
    """Changes values of bert_config.json, or removes those that are None."""
    def damage(folder, flags):
        path = folder / "bert_config.json"
        values = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return damage


def variables(**shapes) -> Callable:
    """Replaces the checkpoint by one with these variables."""
    def damage(folder, flags):
        with tf.Graph().as_default(), tf.Session() as session:
            for name, shape in shapes.items():
                tf.get_variable(name.replace("__", "/"), shape)
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, str(folder / "bert_model.ckpt"), write_state=False,
                                  write_meta_graph=False)
    return damage


def with_outputs(count: int) -> Callable:
    """Makes the checkpoint that of a classifier with so many outputs."""
    def damage(folder, flags):
        prefix = str(folder / "bert_model.ckpt")
        checkpoints.write_checkpoint(prefix, {
            **checkpoint_values(prefix), "output_weights": np.zeros([count, 16], np.float32),
            "output_bias": np.zeros([count], np.float32)})
    return damage


def row(text, name: str = "train.tsv") -> Callable:
    """Adds line 22 to a good file."""
    addition = text if isinstance(text, bytes) else text.encode("utf-8")
    return content(name, (HEADER + GOOD).encode() + addition)


def csv(text: str) -> Callable:
    """A CSV file in the place of train.tsv; the text begins on line 22."""
    return in_turn(missing("train.tsv"), content("train.csv", CSV_HEADER + CSV_GOOD + text))


def jsonl(text: str) -> Callable:
    """JSON lines in the place of train.tsv; the text begins on line 3."""
    return in_turn(missing("train.tsv"), content("train.jsonl", JSON_GOOD + text))


def processor(text: str, **flags) -> Callable:
    """A data processor in the place of the files."""
    return in_turn(content("mine.py", text),
                   flags_set(task_name=None, processor="{}/mine.py:Mine", do_predict=False,
                             **flags))

"""A user's own files with whatever is wrong with them: one clear line, or a counted warning.

Every case is done to the files and flags of a command that would work.
"""

import json
import re
from typing import Callable

import pytest

from bad_files import Case, assert_refused, content, directory, flags_set, in_turn, missing
from commands import arguments, run_command, run_here
from conftest import TinyModel

HEADER = "label\ttext\n"
GOOD = "yes\tthe cat\nno\ta dog\n" * 10  # lines 2 to 21, below the header
CSV_HEADER = "label,text\n"
CSV_GOOD = GOOD.replace("\t", ",")
JSON_GOOD = '{"label": "yes", "text": "the cat"}\n{"label": "no", "text": "a dog"}\n'

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


@pytest.fixture
def command_line(tiny_model: TinyModel, tmp_path):
    """The folder of a command that would work, and its flags."""
    for name, text in (("train", HEADER + GOOD), ("dev", HEADER + GOOD), ("test", "text\ncat\n")):
        (tmp_path / f"{name}.tsv").write_text(text)
    return tmp_path, dict(
        tiny_model._asdict(), task_name="file", data_dir=tmp_path, output_dir=tmp_path / "out",
        max_seq_length=16, train_batch_size=4, num_train_epochs=1, num_cpu_replicas=2,
        do_train=True, do_eval=True, do_predict=True)


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


def returning(value: str) -> str:
    """The processor that returns something else for each set."""
    return re.sub(r"return \[Input(.*\n){2}", f"return {value}\n", PROCESSOR)


def numbers(text: str) -> Callable:
    """A regression's training set with another number on line 3."""
    return in_turn(flags_set(label_kind="regression"),
                   content("train.tsv", f"{HEADER}0.5\tthe cat\n{text}\ta dog\n"))


CASES = {
    # Rows and columns.
    "a row with too few columns": Case(
        row("yes\n"), ("train.tsv, line 22", "1 columns", "first line has 2")),
    "a row with too many columns": Case(
        row("no\ta\tdog\n"), ("train.tsv, line 22", "3 columns", "first line has 2", "tab")),
    "one column": Case(content("train.tsv", "the cat\na dog\n"),
                       ("train.tsv", "one column", "tabs", "commas")),
    "columns between semicolons": Case(
        in_turn(missing("train.tsv"), content("train.csv", GOOD.replace("\t", ";"))),
        ("train.csv", "one column", "commas in .csv")),
    "a label column that is not there": Case(
        flags_set(label_column="stars"), ("train.tsv", "'stars'", "--label_column", "label, text")),
    "a label column whose number is too large": Case(
        in_turn(flags_set(label_column="3"), content("train.tsv", GOOD)),
        ("train.tsv", "'3'", "--label_column", "2 columns")),
    "a column that is there twice": Case(
        content("train.tsv", "label\ttext\ttext\nyes\tthe\tcat\n"),
        ("train.tsv, line 1", "2 columns", "'text'", "number", "--text_column")),
    "one column for text and label": Case(
        flags_set(text_column="text", label_column="2"), ("--text_column", "--label_column",
                                                          "different")),
    "no column but two texts": Case(
        content("train.tsv", "sentence1\tsentence2\nthe cat\ta dog\n"),
        ("train.tsv", "no column is left for the label", "sentence1, sentence2")),
    "a header and nothing else": Case(content("train.tsv", HEADER), ("train.tsv", "no examples")),
    "an empty file": Case(content("dev.tsv", ""), ("dev.tsv", "no examples")),
    # Labels.
    "a label that the training set lacks": Case(
        row("maybe\tthe cat\n", "dev.tsv"), ("dev.tsv, line 22", "'maybe'", "one of no, yes")),
    "an empty label": Case(row("\tthe cat\n"), ("train.tsv, line 22", "''", "every example")),
    "a label as long as a book": Case(
        row("x" * 100_000 + "\tthe cat\n", "dev.tsv"), ("dev.tsv, line 22", "xxx...", "no, yes")),
    "one label for all": Case(content("train.tsv", HEADER + "yes\tcat\n" * 20),
                              ("train.tsv", "every label is 'yes'", "--label_column")),
    "no label at all": Case(
        in_turn(flags_set(label_kind="multi_label"), content("train.tsv", HEADER + "\tcat\n" * 9)),
        ("train.tsv", "no examples with a label", "--label_column")),
    "a label of two lines": Case(
        csv('"no\nno",a dog\n'), ("train.csv, line 22", r"'no\nno'", "line end", "--label_column")),
    "a label in a list with a comma": Case(
        jsonl('{"label": ["yes, or no"], "text": "a"}\n'),
        ("train.jsonl, line 3", "yes, or no", "','", "--label_separator")),
    "more labels than classes can be": Case(
        content("train.tsv", HEADER + "".join(f"{i}\tthe cat\n" for i in range(100_001))),
        ("train.tsv", "100,000", "--label_column", "--label_kind=regression")),
    "a number that is a word": Case(numbers("high"), ("train.tsv, line 3", "'high'", "number")),
    "a number without end": Case(numbers("inf"), ("train.tsv, line 3", "'inf'", "finite")),
    "a separator without several labels": Case(
        flags_set(label_separator="|"), ("--label_separator='|'", "--label_kind=multi_label")),
    "a blank separator": Case(flags_set(label_separator=" ", label_kind="multi_label"),
                              ("--label_separator=' '", "blank")),
    # Bytes.
    "a line in Latin-1": Case(row("yes\tcaf\xe9\n".encode("latin-1")),
                              ("train.tsv, line 22", "UTF-8", "iconv")),
    "UTF-16": Case(content("train.tsv", (HEADER + GOOD).encode("utf-16")),
                   ("train.tsv, line 1", "UTF-16", "iconv")),
    "a NUL": Case(row(b"yes\tthe \0 cat\n"), ("train.tsv, line 22", "NUL")),
    # CSV.
    "a quote that is not closed": Case(
        csv('no,"a dog\n' + CSV_GOOD), ("train.csv, line 22", "quotes", "closed")),
    "text behind a closing quote": Case(
        csv('no,"two\nlines"\nyes,"the" cat\n'), ("train.csv, line 24", "quotes")),
    "commas without quotes": Case(
        csv("no,a, dog\n"), ("train.csv, line 22", "3 columns", "quotes")),
    # JSON lines.
    "a line that is cut short": Case(jsonl('{"label": "yes", "te\n'),
                                     ("train.jsonl, line 3", "JSON", "one object")),
    "arrays within arrays": Case(jsonl("[" * 100_000 + "\n"), ("train.jsonl, line 3", "JSON")),
    "null for a text": Case(jsonl('{"label": "yes", "text": null}\n'),
                            ("train.jsonl, line 3", "'text' is null", "a text")),
    "a file that is one array": Case(
        in_turn(missing("train.tsv"), content("train.jsonl", "[\n" + JSON_GOOD + "]")),
        ("train.jsonl, line 1", "JSON", "one object")),
    # Files and flags.
    "a directory for a file": Case(directory("dev.tsv"), ("dev.tsv", "directory")),
    "a file that is not there": Case(
        flags_set(dev_file="{}/other.tsv"), ("--dev_file", "other.tsv", "No such file")),
    "no set": Case(missing("train.tsv"), ("none of train.tsv, train.txt, train.csv, train.jsonl",
                                          "--train_file")),
    "two files for one set": Case(content("dev.csv", CSV_HEADER + CSV_GOOD),
                                  ("dev.tsv and dev.csv", "--dev_file")),
    "neither directory nor file": Case(flags_set(data_dir=None), ("--data_dir", "--train_file")),
    "a file of another kind": Case(
        in_turn(content("train.xlsx", b"PK\x03\x04\x14\0"), flags_set(train_file="{}/train.xlsx")),
        ("train.xlsx", ".tsv, .txt, .csv, .jsonl")),
    "labels that nobody knows": Case(flags_set(do_train=False), ("--output_dir", "--do_train")),
    "a column of another task": Case(
        flags_set(task_name="cola", label_column="2"), ("--label_column", "--task_name=file")),
    # Data processors.
    "a processor that is not there": Case(
        flags_set(task_name=None, processor="{}/mine.py:Mine"), ("--processor", "mine.py")),
    "a processor without its class": Case(
        flags_set(task_name=None, processor="{}/mine.py"), ("--processor", "file.py:ClassName")),
    "a processor's class that is not there": Case(
        processor("class Other: pass"), ("mine.py", "no class 'Mine'")),
    "a processor that returns nothing": Case(
        processor(returning("[]")),
        ("get_train_examples", "nothing")),
    "a processor that finds no file, through TensorFlow": Case(
        processor("import tensorflow.compat.v1 as tf\n"
                  + returning("tf.gfile.Open('gone.tsv').read()")),
        ("get_train_examples", "No such file", "gone.tsv")),
    "a processor with an unknown label": Case(
        processor(PROCESSOR.replace('None, "no"', 'None, "maybe"')),
        ("train example 't-2'", "'maybe'", "one of no, yes")),
    "a processor with a label twice": Case(
        processor(PROCESSOR.replace('["no", "yes"]', '["no", "yes", "no "]')),
        ("get_labels()", "the same label twice: no, yes, no")),
}


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_file_is_one_line_and_status_2(name, command_line, capsys):
    assert_refused(CASES[name], *command_line, capsys)


@pytest.mark.parametrize("name", [
    "a row with too many columns", "a quote that is not closed", "a processor that is not there"])
def test_a_process_ends_with_the_line_and_writes_nothing(name, command_line):
    folder, flags = command_line
    CASES[name].damage(folder, flags)
    process = run_command(*arguments(flags))
    assert process.returncode == 2 and process.stdout == ""
    errors = [line for line in process.stderr.splitlines() if line.startswith("error:")]
    assert errors == process.stderr.splitlines()[-1:]
    assert all(part in errors[0] for part in CASES[name].mentions)
    assert not (folder / "out").exists()


def test_rows_that_are_odd_and_harmless_are_taken_and_counted(command_line, capsys):
    folder, flags = command_line
    row("\n   \nyes\t\nno\t \nyes\t" + "the cat sees " * 800_000 + "\n")(folder, flags)
    (folder / "dev.tsv").unlink()
    (folder / "dev.jsonl").write_text(JSON_GOOD + '\n{"label": "no", "text": 3.5, "more": null}\n')
    run_here({**flags, "do_predict": False})
    said = capsys.readouterr().err
    warnings = [line for line in said.splitlines() if line.startswith("WARNING")]
    path = folder / "train.tsv"
    assert warnings == [f"WARNING: {path}: skipped 2 blank lines",
                        f"WARNING: {path}: 2 examples have an empty text"]
    assert "23 examples x 1 epoch" in said
    assert json.loads((folder / "out" / "eval_results.json").read_text())["num_examples"] == 3

"""A user's own files and data processors: what is read of them, and what their labels mean.

Data processors are compared with the equivalent file.
"""

import json
import re
from typing import Dict, List, Tuple

import numpy as np
import pytest

from conftest import TinyModel, sentences
from encoder import label_types
from engine.errors import UserError
from runs.columns import Trained
from task_files import user_task
from tasks import processors
from tasks.data import TextSet, load_texts
from tasks.model_folder import Classification
from tasks.table import Task

SETS = ("train", "dev", "test")


def make_task(folder, files: Dict[str, str], **options) -> Task:
    """Writes the files, named after their sets, and makes the task that they are."""
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8"))
    sets = [name for name in SETS if any(file.startswith(name) for file in files)]
    return user_task(folder, sets, **options)


def rows_of(task: Task, name: str) -> List[Tuple]:
    """The examples of a set, with their labels as people write them."""
    split = getattr(task, name)
    return [(*(*texts, None)[:2], None if label is None else written(task.kind, label))
            for texts, label in split.examples(task.kind.with_more(split.more_labels))]


def written(kind: label_types.Kind, label) -> str:
    """A label that was read, as `Kind.format_label` gives it."""
    if isinstance(label, tuple):
        label = np.isin(np.arange(kind.num_outputs), label)
    return kind.format_label(label)


# --- Reading -------------------------------------------------------------------------------

GUESSED = {
    "text, tab, class, as THUCNews": (
        "train.txt", "词汇阅读是关键\t3\n中国人民公安大学\t10\n名师详解\t3\n",
        [("词汇阅读是关键", None, "3"), ("中国人民公安大学", None, "10"), ("名师详解", None, "3")]),
    "a pair and a score": (
        "train.tsv", "sentence1\tsentence2\tscore\na cat\ta dog\t2.5\na\tb\t5\n",
        [("a cat", "a dog", "2.5"), ("a", "b", "5")]),
    "a class that is named as columns are": (
        "train.tsv", "why is it so\tquestion\nit is\tanswer\nwho is it\tquestion\n",
        [("why is it so", None, "question"), ("it is", None, "answer"),
         ("who is it", None, "question")]),
    "unusual names above numbers": (
        "train.tsv", "Kommentar\tNote\n" + "".join(f"gut, {i}\t{i % 2}\n" for i in range(10)),
        [(f"gut, {i}", None, str(i % 2)) for i in range(10)]),
    "a byte order mark, CRLF and quotes that are text": (
        "train.tsv", '\ufeff1\t"a cat\r\n0\ta "small" dog\r\n1\t""\r\n',
        [('"a cat', None, "1"), ('a "small" dog', None, "0"), ('""', None, "1")]),
    "files put one after the other": (
        "train.tsv", "\ufeff0\ta cat\n\ufeff1\ta dog\n0\ta bird\n",
        [("a cat", None, "0"), ("a dog", None, "1"), ("a bird", None, "0")]),
    "CSV with quotes": (
        "train.csv", '\ufefftext,label\r\n"a, ""b""\tc",yes\r\n"two\r\nlines", no\r\n',
        [('a, "b"\tc', None, "yes"), ("two\nlines", None, "no")]),
    "JSON lines": (
        "train.jsonl", '{"id": 7, "label": 1, "text": "a\\tcat \\ud83d"}\n\n'
        '{"text": 3.5, "label": true, "more": []}\n',
        [("a\tcat \ufffd", None, "1"), ("3.5", None, "true")]),
    "lists of labels": (
        "train.jsonl", '{"text": "a", "label": ["x", " y"]}\n{"text": "b", "label": []}\n'
        '{"text": "c", "label": "y,1"}\n{"text": "d", "label": [1]}\n',
        [("a", None, "x,y"), ("b", None, ""), ("c", None, "1,y"), ("d", None, "1")]),
}


@pytest.mark.parametrize("name", GUESSED)
def test_columns_header_and_kind_are_detected_and_logged(name, tmp_path, capsys):
    file, text, expected = GUESSED[name]
    task = make_task(tmp_path, {file: text})
    assert rows_of(task, "train") == expected
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"{tmp_path / file}: ") and "(detected)" in said[0]
    flags = said[0].split("to change that, set ")[1].split(" or ")
    assert flags and {*flags} <= {"--header", "--text_column", "--text_pair_column", "--label_column"}
    assert "so this is a regression" in said[1] if not task.kind.labels else (
        f"{len(task.kind.labels)} labels ({', '.join(task.kind.labels)})" in said[1])


FRACTIONS = [f"{number / 7:.6f}" for number in range(1, 31)]
STARS = [str(number % 5 + 1) for number in range(30)]


def labelled(labels, header: str = "text\tscore\n") -> str:
    return header + "".join(f"film number {i}\t{label}\n" for i, label in enumerate(labels))


def json_of(labels) -> str:
    return "".join(json.dumps({"text": f"film {i}", "score": label}) + "\n"
                   for i, label in enumerate(labels))


@pytest.mark.parametrize("odd", [
    "nan", "NA", "None", "n/a", "<NA>", "?", "-", "", "inf", "1,5", "3.0.0", "1,234.5", "3.5 kg", "80%",
    "\u22120.5", "high", "score"])
def test_an_odd_label_among_fractions_is_an_error_with_its_line(odd, tmp_path):
    labels = [*FRACTIONS[:7], odd, *FRACTIONS[7:]]
    for header, line in (("text\tscore\n", 9), ("", 8), ("Kommentar\tNote\n", 9)):
        with pytest.raises(UserError, match=f"train.tsv, line {line}: the label is ") as error:
            make_task(tmp_path, {"train.tsv": labelled(labels, header)})
        assert repr(odd) in str(error.value)
        if odd:
            assert "30 of 31 labels are numbers" in str(error.value)
            assert "--label_kind=classes" in str(error.value)


@pytest.mark.parametrize("labels, line", [
    ([*FRACTIONS, None], 31), ([*map(float, FRACTIONS), "n/a"], 31), ([0.5, float("nan"), 2, 3], 2),
    (["NA", *map(float, FRACTIONS)], 1), ([1, 2, 3, "null", 5], 4)])
def test_so_it_is_in_json_lines(labels, line, tmp_path):
    with pytest.raises(UserError, match=f"train.jsonl, line {line}: "):
        make_task(tmp_path, {"train.jsonl": json_of(labels)})


@pytest.mark.parametrize("labels, line", [
    ([label.replace(".", ",") for label in FRACTIONS], 2), ([f"{n},005" for n in range(9)], 2),
    ([f"{label} kg" for label in FRACTIONS], 2), ([f"{n}%" for n in range(30)], 2),
    ([*FRACTIONS[:9], *["NA"] * 20], 11), ([*STARS, "nan"], 32), ([*STARS, "1,5"], 32)])
def test_numbers_that_cannot_be_read_are_no_classes_unless_the_flag_says_so(labels, line, tmp_path):
    files = {"train.tsv": labelled(labels)}
    with pytest.raises(UserError, match=f"line {line}: .* write this one like 1234.5 .*multi_label"):
        make_task(tmp_path, files)
    assert set(make_task(tmp_path, files, label_kind="classes").kind.labels) == set(labels)


@pytest.mark.parametrize("classes", [
    "0% 25% 50% 75%", "1.0.1 2.0 2.1", "1.1.2020 2.1.2020", "10.0.0.1 10.0.0.2", "1,2 2,3 1,3", "1.5L 2.5L",
    "10,000 20,000 0-10k", "9.30 10.15 noon", "1.1 1.2 2.1 A", "1 2 3 none", "0 1 NA", "0 0.5 1 ?", "1 2 -"])
def test_classes_that_look_like_numbers_are_classes(classes, tmp_path):
    task = make_task(tmp_path, {"train.tsv": labelled(5 * classes.split())})
    assert set(task.kind.labels) == set(classes.split())


def test_a_few_fractions_among_classes_are_told(tmp_path, capsys):
    assert not make_task(tmp_path, {"train.tsv": labelled([*STARS, "3.5"])}).kind.labels
    assert re.search("WARNING: .* 1 with a fraction .*on line 32", capsys.readouterr().err)
    assert make_task(tmp_path, {"train.tsv": labelled([*"abcabc", "1.5"])}).kind.labels == (
        "1.5", "a", "b", "c")
    assert "1 of 4 labels have one example each" in capsys.readouterr().err
    assert make_task(tmp_path, {"train.tsv": labelled("-0+-0+")}).kind.labels == ("+", "-", "0")


@pytest.mark.parametrize("labels, basis, told", [
    ([f"id{n}" for n in range(12)], "they are no numbers",
     "12 of 12 labels have one example each, .* 'id0' on line 2;"),
    (range(12), "they are whole numbers", "12 of 12 labels have one example each"),
    ([*STARS, "other"], "some are no numbers", "1 of 6 labels have one example each, .* 'other' on line 32;"),
    ([*"abab"], "they are no numbers", None),
    ([*"abab" * 5, "1.5", "1.5"], "few are fractions", None)])
def test_labels_have_a_basis_and_those_with_one_example_are_told(labels, basis, told, tmp_path, capsys):
    make_task(tmp_path, {"train.tsv": labelled(labels)})
    said = capsys.readouterr().err
    assert f"(detected: {basis}; see --label_kind)" in said
    assert re.search(f"WARNING: .*{told}", said) if told else "WARNING" not in said


def test_a_header_is_one_although_it_is_there_again_and_an_odd_label_is_none(tmp_path):
    with pytest.raises(UserError, match="train.tsv, line 6: the header again"):
        make_task(tmp_path, {"train.tsv": labelled("abab") + labelled("abab", "Text \tScore\n")})
    with pytest.raises(UserError, match="train.tsv, line 1: the label is 'nan'"):
        make_task(tmp_path, {"train.tsv": labelled(["nan", *FRACTIONS], header="")})
    task = make_task(tmp_path, {"train.tsv": labelled(FRACTIONS), "dev.tsv": labelled(["1.5", "1,5"])})
    with pytest.raises(UserError, match="dev.tsv, line 3: the label is .* a finite number"):
        rows_of(task, "dev")


def test_a_few_lists_among_texts_are_told(tmp_path, capsys):
    files = {"train.jsonl": json_of([*"abab", ["a", "b"]])}
    assert make_task(tmp_path, files).kind.name == "multi_label"
    said = capsys.readouterr().err
    assert "WARNING" in said and "each example, separated by ',' (detected: some are lists;" in said
    with pytest.raises(UserError, match="line 5: the label is .*'a', 'b'.* one label"):
        make_task(tmp_path, files, label_kind="classes")


NAMES = "no\t0\tcat\nyes\t1\tdog\n"


@pytest.mark.parametrize("text, options", [
    ("a\tb\tc\n" + NAMES, dict(text_column="c", label_column="a", header=True)),
    ("label\tx\tx\n" + NAMES, dict(text_column="3", label_column="1")),
    (NAMES, dict(text_column="3", label_column="1")),
    ("text\tlabel\ncat\tno\ndog\tyes\n", dict(text_column="1", label_column="2", header=False)),
    ("title\tanswer\ncat\tno\ndog\tyes\n", dict(label_column="answer")),
    ("label\ttitle\nno\tcat\nyes\tdog\n", dict(text_column="title"))])
def test_given_columns_are_used(text, options, tmp_path):
    header = [("text", None, "label")] if options.get("header") is False else []
    assert rows_of(make_task(tmp_path, {"train.tsv": text}, **options), "train") == [
        *header, ("cat", None, "no"), ("dog", None, "yes")]


WITH_IDS, BARE = "label\tid\ttext\n0\t7\ta cat\n1\t8\ta dog\n", "0\ta cat\n1\ta dog\n1\ta cat\n"


@pytest.mark.parametrize("train, test, options", [
    (WITH_IDS, "id\ttext\n9\ta bird\n", {}),
    (WITH_IDS, "text\tid\na bird\t9\n", dict(text_column="3", label_column="1")),
    ("7\t0\ta cat\n8\t1\ta dog\n", "9\ta bird\n", dict(text_column="3", label_column="2")),
    (BARE, "a bird\n", {}), ("label\ttext\n0\ta cat\n1\ta dog\n", "a bird\n", {}),  # one header
    (BARE, "text\na bird\n", {}), (BARE, "?\ta bird\n", {})])  # another header; the label is there
def test_a_test_file_may_lack_the_label_column(train, test, options, tmp_path):
    task = make_task(tmp_path, {"train.tsv": train, "test.tsv": test}, **options)
    assert rows_of(task, "train")[0] == ("a cat", None, "0")
    assert rows_of(task, "test") == [("a bird", None, None)]


@pytest.mark.parametrize("labels, expected", [
    (("10", "2", "-1"), ("-1", "2", "10")), (("10.0", "2.0"), ("2.0", "10.0")),
    (("b", "10", "2"), ("10", "2", "b")), (("\u00b3", "\u00b2"), ("\u00b2", "\u00b3"))])
def test_labels_are_in_the_order_of_their_values_or_letters(labels, expected, tmp_path):
    text = "".join(f"{label}\tthe text {i}\n" for i, label in enumerate([*labels, *labels]))
    assert make_task(tmp_path, {"train.tsv": text}).kind.labels == expected


def test_a_second_set_may_have_another_format(tmp_path):
    task = make_task(tmp_path, {"train.tsv": "label\ttext\nb\tx\na\ty\n", "dev.csv":
                                'text,label\n"x, y",b\n', "test.jsonl": '{"text": "z"}\n'})
    assert rows_of(task, "dev") == [("x, y", None, "b")]
    assert rows_of(task, "test") == [("z", None, None)]


@pytest.mark.parametrize("options, message", [
    (dict(label_kind="regression"), "trained with 'multi_label'"),
    (dict(label_kind="multi_label", label_separator=";"), "trained with '[|]'"),
    (dict(text_pair_column="more"), "single texts")])
def test_flags_that_contradict_a_trained_model_are_refused(options, message, tmp_path):
    (tmp_path / "dev.tsv").write_text("text\tlabel\tmore\na\tx|y\tb\n")
    trained = Classification(label_types.MultiLabel(["x", "y"], "|"), takes_pairs=False)
    with pytest.raises(UserError, match=message):
        user_task(tmp_path, ["dev"], trained, **options)


WIDE = "grade\tremark\tanimal\tsource\n1\tthe cat\tcat\tpage\n"


@pytest.mark.parametrize("text, options, first", [
    (WIDE, dict(header=True), ("the cat", None, "cat")),
    (WIDE, dict(header=True, text_column="source"), ("page", None, "cat")),
    ("cat\tthe cat\nnone\ta dog\ncat\ta cat\n", {}, ("the cat", None, "cat"))])
def test_columns_are_the_flags_or_else_the_models_or_else_detected(text, options, first, tmp_path):
    (tmp_path / "dev.tsv").write_text(text)
    trained = Classification(label_types.SingleLabel(["cat", "none"]), trained_columns=Trained(
        "remark", None, "animal", None, 4))
    assert rows_of(user_task(tmp_path, ["dev"], trained, **options), "dev")[0] == first


# --- The store -----------------------------------------------------------------------------


def load(task, folder, model: TinyModel) -> TextSet:
    (folder / "store").mkdir(exist_ok=True)
    return load_texts(task.train, task.kind, model.encoding(16), str(folder / "store"))


def test_another_kind_or_column_has_a_store_and_an_identity_of_its_own(tiny_model, tmp_path):
    text = "".join(f"{i % 2}\t{i % 3}\tcat {'the ' * (i % 5)}\tdog\n" for i in range(6))
    choices = [dict(label_column="1"), dict(label_column="2"),
               dict(label_column="1", label_kind="multi_label"),
               dict(label_column="1", label_kind="regression"),
               dict(label_column="1", text_column="4")]
    sets = [load(make_task(tmp_path, {"train.tsv": text}, **{"text_column": "3", **choice}),
                 tmp_path, tiny_model) for choice in choices]
    assert [texts.labels[:4].tolist() for texts in sets] == [
        [0, 1, 0, 1], [0, 1, 2, 0], [[1, 0], [0, 1], [1, 0], [0, 1]], [0.0, 1.0, 0.0, 1.0],
        [0, 1, 0, 1]]
    assert [texts.labels.dtype.name for texts in sets] == [
        "int32", "int32", "float32", "float32", "int32"]
    assert sets[4].records.lengths("input_ids").tolist() == [3] * 6
    assert len({texts.records.directory for texts in sets}) == len(sets)
    assert sets[0].content_hash not in (sets[1].content_hash, sets[4].content_hash)


# --- Data processors -----------------------------------------------------------------------

PROCESSOR = """
import os
from run_classifier import DataProcessor, InputExample

class Mine(DataProcessor):
    def get_labels(self):
        return ["no", "yes"]

    def get_train_examples(self, data_dir):
        rows = self._read_tsv(os.path.join(data_dir, "train.tsv"))
        return [InputExample(str(i), row[1].encode(), row[2], label=row[0]) for i, row in enumerate(rows)]
"""


def test_a_processor_and_the_equivalent_file_give_the_same_records(tiny_model, tmp_path):
    pairs = list(zip(sentences(30, 4), [*sentences(29, 5), '"']))
    text = "".join(f"{('no', 'yes')[i % 2]}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairs))
    file_task = make_task(tmp_path, {"train.tsv": text}, text_column="2", text_pair_column="3",
                          label_column="1")
    (tmp_path / "mine.py").write_text(PROCESSOR)
    task = processors.make_task(f"{tmp_path / 'mine.py'}:Mine", str(tmp_path))
    assert task.kind.labels == file_task.kind.labels == ("no", "yes")
    texts = load(task, tmp_path, tiny_model)
    expected = load(file_task, tmp_path, tiny_model)
    assert len(texts) == 30 and texts.records.directory != expected.records.directory
    np.testing.assert_equal(*(each.source(with_labels=True).fetch(np.arange(30), 16)
                              for each in (texts, expected)))

"""One odd row does not stop a batch: it keeps its line, is counted, and the first one is named."""

import json

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import sentences
from pretraining import texts as pretraining_texts
from runs import predict

GOOD = sentences(6)
# File → its rows, with two odd ones as the third and the fifth, and what is said of the first.
FILES = {
    "texts.csv": ("sentence,id\n", ['"{text}",1\n'] * 6, ["a,b,c\n", "alone\n"],
                  "line 4: 3 columns, and the file's first line has 2"),
    "texts.tsv": ("sentence\tid\n", ["{text}\t1\n"] * 6, ["alone\n", "a\tb\tc\n"],
                  "line 4: 1 columns"),
    "texts.jsonl": ("", ['{{"text": "{text}"}}\n'] * 6, ['{"text": null}\n', "no JSON\n"],
                    "line 3: 'text' is null"),
}


def rows_of(name):
    header, rows, odd, said = FILES[name]
    rows = [row.format(text=text) for row, text in zip(rows, GOOD)]
    return header, [*rows[:2], odd[0], rows[2], odd[1], *rows[3:]], said


def warning_in(capsys):
    warning, = [line for line in capsys.readouterr().err.splitlines() if line.startswith("WARNING")]
    return warning


@pytest.mark.parametrize("name, form", [
    ("texts.csv", "tsv"), ("texts.tsv", "jsonl"), ("texts.jsonl", "tsv")])
def test_predict_answers_the_others_and_keeps_the_line(name, form, tiny_classifier, tmp_path, capsys):
    header, rows, said = rows_of(name)
    (tmp_path / name).write_text(header + "".join(rows))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in GOOD))
    found = []
    for source in (name, "texts.txt"):
        run_here({"output_dir": tiny_classifier, "input_file": tmp_path / source, "header":
                  source.endswith((".csv", ".tsv")) or None, "num_cpu_replicas": 1,
                  "output_file": tmp_path / f"out.{form}"}, predict)
        found.append((tmp_path / f"out.{form}").read_text().splitlines()[form == "tsv":])
        if source == name:
            assert f"2 of 8 have no prediction; the first: {tmp_path / name}, {said}" in (
                warning_in(capsys))
    if form == "tsv":
        assert [found[0][2], found[0][4]] == ["\t\t"] * 2
    else:
        errors = [json.loads(found[0][line])["error"] for line in (2, 4)]
        assert f"{name}, {said}" in errors[0] and "line 6:" in errors[1]
    del found[0][4], found[0][2]
    assert [len(lines) for lines in found] == [6, 6]
    scores = [[line.split("\t")[1:] if form == "tsv" else list(
        json.loads(line)["probabilities"].values()) for line in lines] for lines in found]
    np.testing.assert_allclose(*np.array(scores, float), atol=1e-6)


def test_a_file_of_odd_rows_alone_is_an_error_and_leaves_nothing(tiny_classifier, tmp_path, capsys):
    (tmp_path / "texts.jsonl").write_text('{"text": null}\n' * 3)
    with ends_with_error(capsys, "line 1: 'text' is null"):
        run_here({"output_dir": tiny_classifier, "input_file": tmp_path / "texts.jsonl",
                  "num_cpu_replicas": 1, "output_file": tmp_path / "out.tsv"}, predict)
    assert not (tmp_path / "out.tsv").exists()


def test_a_line_that_is_no_pair_is_left_out_of_pretraining_examples(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("1\t0\ta b\tc a b\nno pair\n0\t0\td\te f\n")
    found = list(pretraining_texts.read_sentences([str(tmp_path / "pairs.tsv")], "pairs"))
    assert [sentence.text for sentence in found] == ["a b", "c a b", "d", "e f"]
    assert "1 of 3 lines are left out; the first" in warning_in(capsys)

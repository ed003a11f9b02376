"""One odd row does not stop a batch: it keeps its line, is counted, and the first one is named."""

import json

import extract_features
import pytest

from commands import ends_with_error, run_here
from conftest import sentences
from masked_lm import write_tiny_masked_lm
from pretraining import texts as pretraining_texts
from rows import assert_same_rows, rows_in
from runs import predict
from similarity_files import write_model

GOOD = sentences(6)
# File → its rows, with two odd ones as the third and the fifth, and what is said of the first.
FILES = {
    "texts.csv": ("sentence,id\n", ['"{text}",1\n'] * 6, ["a,b,c\n", "alone\n"],
                  "line 4: 3 columns, and the file's first line has 2"),
    "texts.jsonl": ("", ['{{"text": "{text}"}}\n'] * 6, ['{"text": null}\n', '{"text": NaN}\n'],
                    "line 3: 'text' is null"),
}


def rows_of(name):
    header, rows, odd, said = FILES[name]
    rows = [row.format(text=text) for row, text in zip(rows, GOOD)]
    return header, [*rows[:2], odd[0], rows[2], odd[1], *rows[3:]], said


def warning_in(capsys):
    warning, = [line for line in capsys.readouterr().err.splitlines() if line.startswith("WARNING")]
    return warning


@pytest.mark.parametrize("name, form", [("texts.csv", "tsv"), ("texts.jsonl", "jsonl")])
def test_predict_answers_the_others_and_keeps_the_line(name, form, tiny_classifier, tmp_path, capsys):
    header, rows, said = rows_of(name)
    (tmp_path / name).write_text(header + "".join(rows))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in GOOD))
    answers = []
    for source in ("texts.txt", name):
        run_here({"output_dir": tiny_classifier, "input_file": tmp_path / source, "header":
                  source.endswith(".csv") or None, "num_cpu_replicas": 1,
                  "output_file": tmp_path / f"out.{form}"}, predict)
        answers.append(rows_in([tmp_path / f"out.{form}"]))
    assert f"2 of 8 have no prediction; the first: {tmp_path / name}, {said}" in warning_in(capsys)
    second, first = (answers[1].pop(line) for line in (4, 2))
    if form == "tsv":
        assert first == second == "\t\t\n"
    else:
        assert f"{name}, {said}" in json.loads(first)["error"]
        assert all(part in json.loads(second)["error"] for part in ("line 5: ", "NaN is no value of JSON"))
    assert_same_rows(*answers)
    assert len(answers[0]) == 6


def test_a_file_of_odd_rows_alone_is_an_error_and_leaves_nothing(tiny_classifier, tmp_path, capsys):
    (tmp_path / "texts.jsonl").write_text('{"text": null}\n' * 3)
    with ends_with_error(capsys, "line 1: 'text' is null"):
        run_here({"output_dir": tiny_classifier, "input_file": tmp_path / "texts.jsonl",
                  "num_cpu_replicas": 1, "output_file": tmp_path / "out.tsv"}, predict)
    assert not (tmp_path / "out.tsv").exists()


def test_a_bad_row_among_single_texts_leaves_the_others_their_vectors(tiny_model, tmp_path):
    """The model also takes pairs, and what stands for the row must be none."""
    write_model(tmp_path / "vectors", tiny_model)
    (tmp_path / "texts.jsonl").write_text('{"text": "the cat"}\n{"text": null}\n{"text": "a dog"}\n')
    run_here({"output_dir": tmp_path / "vectors", "input_file": tmp_path / "texts.jsonl",
              "num_cpu_replicas": 1, "output_file": tmp_path / "out.jsonl"}, predict)
    assert [list(json.loads(line)) for line in open(tmp_path / "out.jsonl")] == [["vector"], ["error"], ["vector"]]


def test_a_line_that_is_no_pair_is_left_out_of_pretraining_examples(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("1\t0\ta b\tc a b\nno pair\n0\t0\td\te f\n")
    kept = list(pretraining_texts.read_sentences([str(tmp_path / "pairs.tsv")], of_pairs=True))
    assert [sentence.text for sentence in kept] == ["a b", "c a b", "d", "e f"]
    assert "1 of 3 lines are left out; the first" in warning_in(capsys)


@pytest.fixture
def lines_with_a_bad_one(tmp_path):
    lines = [f"{text}\n".encode() for text in GOOD]
    (tmp_path / "whole.txt").write_bytes(b"".join(lines))
    (tmp_path / "bad.txt").write_bytes(b"".join([*lines[:2], b"\xff\n", *lines[2:]]))
    return tmp_path


@pytest.mark.parametrize("command, flags", [
    (predict, {"shard": "0/1"}), (extract_features, {"layers": "-1", "max_seq_length": 16})])
def test_a_line_that_is_not_utf8_gets_an_error_in_its_place(
        command, flags, tiny_model, tiny_classifier, lines_with_a_bad_one, capsys):
    folder = lines_with_a_bad_one
    flags = dict(flags, num_cpu_replicas=1, output_file=folder / "out.jsonl")
    if command is predict:
        flags.update(output_dir=tiny_classifier, header=False)
    else:
        flags.update(write_tiny_masked_lm(tiny_model, folder / "lm")._asdict())
    output_file = folder / ("out-00000-of-00001.jsonl" if "shard" in flags else "out.jsonl")
    rows = {}
    for name in ("bad", "whole"):
        given = dict(flags, input_file=folder / f"{name}.txt")
        if name == "bad":
            with ends_with_error(capsys, "bad.txt, line 3: not UTF-8"):
                run_here(given, command)
        run_here(dict(given, skip_bad_lines=True), command)
        rows[name] = rows_in([output_file])
        for path in folder.glob("out*"):
            path.unlink()
    error = json.loads(rows["bad"].pop(2))
    assert error.pop("error").startswith(f"{folder / 'bad.txt'}, line 3: not UTF-8")
    assert error in ({}, {"linex_index": 2})
    assert_same_rows(rows["bad"], rows["whole"])
    assert len(rows["bad"]) == 6
    assert "1 of 7 " in warning_in(capsys)


@pytest.mark.parametrize("command, flags, expected", [
    (predict, {"input_file": "texts.csv"}, "--skip_bad_lines: texts.csv is CSV"),
    (extract_features, {"output_file": "out.npy", "pooling": "mean"},
     "--skip_bad_lines: --output_file=out.npy is an array")])
def test_skipping_is_refused_where_an_error_has_no_place(
        command, flags, expected, tiny_model, tiny_classifier, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("texts.csv", "texts.txt"):
        (tmp_path / name).write_text("a text\n")
    model = {"output_dir": tiny_classifier} if command is predict else dict(tiny_model._asdict())
    with ends_with_error(capsys, expected):
        run_here({"input_file": "texts.txt", **model, **flags, "skip_bad_lines": True,
                  "num_cpu_replicas": 1}, command)

"""`python -m runs.predict` and `TextPredictor` answer for every text, in order, with the numbers of --do_predict."""

import json
import pickle
import re

import numpy as np
import pytest

import processes
from commands import ends_with_error, on_cola, run_here
from conftest import on_tensorflow_1, sentences
from engine.data import text_files
from engine.disk import parts
from engine.errors import UserError
from runs import predict
from runs.capability import PAIR, TEXT, TEXT_OR_PAIR, Takes
from runs.text_predictor import TextPredictor

NUM_TEXTS = 23


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The directory of a model that is trained and has predicted its test set."""
    flags = on_cola(tiny_model, tmp_path_factory.mktemp("predict"), train=16, test=NUM_TEXTS, do_predict=True,
                    num_cpu_replicas=2, train_batch_size=4, learning_rate=1e-3)
    run_here(flags)
    return flags["output_dir"]


@pytest.fixture
def texts():
    return sentences(NUM_TEXTS, 3)


def expected(trained):
    return np.loadtxt(str(trained / "test_results.tsv"))


def predict_here(trained, **flags):
    run_here({"output_dir": trained, "num_cpu_replicas": 2, **flags}, predict)


@pytest.mark.parametrize("name, content", [
    ("texts.txt", "{}\n"), ("texts.csv", '"{}"\n'), ("texts.jsonl", '{{"text": "{}"}}\n')])
def test_a_file_of_any_format_gets_the_numbers_of_do_predict(
        name, content, trained, texts, tmp_path):
    (tmp_path / name).write_text("".join(content.format(text) for text in texts))
    predict_here(trained, input_file=tmp_path / name, output_file=tmp_path / "answers.tsv")
    header, *rows = [line.split("\t") for line in (tmp_path / "answers.tsv").read_text().splitlines()]
    assert header == ["label", "0", "1"]
    np.testing.assert_allclose(np.array([row[1:] for row in rows], float), expected(trained), atol=1e-6)
    assert [row[0] for row in rows] == (trained / "predict.txt").read_text().split()


def assert_are_expected(answers, trained):
    answers = list(answers)
    probabilities = [[answer["probabilities"][label] for label in "01"] for answer in answers]
    np.testing.assert_allclose(probabilities, expected(trained)[:len(answers)], atol=1e-5)
    assert [answer["label"] for answer in answers] == [
        str(int(row[1] > row[0])) for row in probabilities]


def test_a_text_predictor_answers_alike_whatever_the_size_of_the_list(trained, texts):
    predictor = TextPredictor(str(trained), num_cpu_replicas=1, precision="float32")
    assert_are_expected(predictor(texts), trained)
    assert_are_expected([predictor([text])[0] for text in texts[:3]], trained)
    assert predictor([]) == []
    predictor.close()
    assert_are_expected(predictor(texts[:2]), trained)
    with pytest.raises(UserError, match="the model takes single texts"):
        predictor([("one", "two")])
    no_texts = [None, float("nan"), 7, ("one", None, "three"), b"ab", ("one", None), ("one", float("nan")),
                {"text": "one", "text_pair": "two"}, ["one", 2], []]
    missing = predictor([texts[0], *no_texts, texts[1]])
    assert ["error" in each for each in missing] == [False, *[True] * len(no_texts), False]
    assert missing[2]["error"] == "the model takes single texts, and not nan"
    assert_are_expected([missing[0], missing[-1]], trained)
    for no_list in ("one", b"one", None, {"text": "one"}, iter(["one"])):
        with pytest.raises(UserError, match="takes a list of texts"):
            predictor(no_list)
    predictor.close()


@on_tensorflow_1
def test_a_pickled_text_predictor_opens_the_model_where_it_is_called(trained, texts):
    predictor = TextPredictor(str(trained), num_cpu_replicas=1)
    predictor(texts[:1])
    data = pickle.dumps(predictor)
    predictor.close()
    assert len(data) < 1000
    process = processes.run(["-c", "import json, pickle\n"
                             f"predictor = pickle.loads(bytes.fromhex({data.hex()!r}))\n"
                             f"print(json.dumps(predictor({texts!r})))\n"])
    assert process.returncode == 0, process.stderr
    assert_are_expected(json.loads(process.stdout.splitlines()[-1]), trained)


def test_standard_input_is_a_text_a_line_and_empty_lines_keep_their_place(trained, texts):
    process = processes.run(["-m", "runs.predict", f"--output_dir={trained}", "--num_gpus=0"],
                            input="\n\n".join(texts))
    assert process.returncode == 0, process.stderr
    _, *rows = [line.split("\t") for line in process.stdout.splitlines()]
    assert len(rows) == 2 * NUM_TEXTS - 1
    np.testing.assert_allclose(
        np.array([row[1:] for row in rows[::2]], float), expected(trained), atol=1e-6)


@pytest.mark.parametrize("takes, lines, is_told", [
    (TEXT, "one\ttwo\nthree\tfour\n", True), (TEXT, "one\nthree\tfour\n", False), (PAIR, "one\ttwo\n", False),
    (TEXT_OR_PAIR, "one\ttwo\n", False), (TEXT, '{"text": "one"}\n{"text": "two"}\n', True),
    (TEXT_OR_PAIR, '{"text": "one"}\n', True), (TEXT, "{one}\n", False),
    (Takes(3, None, ("Question", "Choice")), "one\ttwo\tthree\none\ttwo\tthree\t\t\n", False)])
def test_a_tab_or_an_object_in_a_single_text_is_told_once(takes, lines, is_told, tmp_path, capsys):
    (tmp_path / "lines").write_text(lines)
    with open(str(tmp_path / "lines"), "rb") as file:
        rows, _ = predict.read_arriving(parts.ArrivingLines(file.fileno()), takes, text_files.OddRows("are odd"))
        assert [row.texts for row in rows] == [
            (line,) if takes.most == 1 else tuple(line.rstrip("\t").split("\t")) for line in lines.splitlines()]
    said = re.findall("line 1 has (.*), and the model takes single texts", capsys.readouterr().err)
    assert said == ["a JSON object" if "{" in lines else "a tab"] * is_told


@pytest.mark.parametrize("flags, file, words", [
    ({"input_file": "texts.csv", "text_column": "title"}, "sentence,id\na,1\n",
     ("no column 'title'", "sentence, id")),
    ({"input_file": "texts.json"}, '[{"text": "a"}]', ("texts.json does not hold lines", ".jsonl")),
    ({"input_file": "texts.txt"}, "", ("texts.txt", "holds no examples")),
    ({"input_file": "texts.txt", "text_pair_column": "2"}, "a\tb\n", ("single texts",)),
    ({"text_column": "2"}, "", ("--text_column", "--input_file")),
    ({"input_file": "texts.txt", "output_file": "texts.txt"}, "a\n", ("is also an input",)),
    ({"input_file": "texts.txt", "output_file": "answers.csv"}, "a\n", ("not written as CSV",)),
    ({"input_file": "texts.txt", "output_file": "answers.json"}, "a\n", ("not written as JSON; name a .tsv or .jsonl",)),
])
def test_wrong_input_is_one_line_and_leaves_no_answers(
        flags, file, words, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("texts.csv", "texts.txt", "texts.json"):
        (tmp_path / name).write_text(file)
    with ends_with_error(capsys, *words):
        predict_here(trained, **{"output_file": "answers.tsv", **flags})
    assert not list(tmp_path.glob("answers.*")) and (tmp_path / "texts.txt").read_text() == file


@pytest.mark.parametrize("name", [".", "not there"])
def test_a_directory_without_a_trained_model_is_refused(name, tmp_path, capsys):
    with ends_with_error(capsys, f"--output_dir={tmp_path / name}", "no trained model"):
        predict_here(tmp_path / name)
    with pytest.raises(UserError, match="no trained model"):
        TextPredictor(str(tmp_path / name))(["one"])

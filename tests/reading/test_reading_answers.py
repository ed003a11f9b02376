"""Answers come from logits as in Google's run_squad.py, and are written as its files are."""

import json
import os

import numpy as np
import pytest

from conftest import SHARED_DATA, googles
from encoder import windows
from reading import answers, capability, report
from reading.answers import AnswerSettings, Candidate
from reading.data import TokenizedQuestion
from reading_files import features, googles_features, load, write, write_made_up
from runs.squad_files import Answer, Question
from tokenization import BasicTokenizer

LENGTH = 32


@pytest.mark.parametrize("predicted, words, expected", [
    ("smith", "(Smith's)", "Smith"),
    ("steve smith", "Steve Smith's", "Steve Smith"),
    ("1895", "(1895-1943).", "1895"),
    ("uber", "Über", "Über"),
    ("a b", "a  b", "a  b"),
    ("[UNK]", "treehouse", None),  # not in the words
    ("x", "x\u200by", None)])  # one has a letter more than the other
def test_an_answer_is_cut_out_of_its_words(predicted, words, expected):
    assert answers.project(predicted, words, BasicTokenizer()) == expected


def made_up_logits(questions, seed=0):
    """Random logits of all windows; having no answer is as likely as a good one."""
    rng, mask = np.random.RandomState(seed), features(questions, False)["input_mask"]
    logits = {name: (rng.randn(*mask.shape) * 3).astype(np.float32)
              for name in ("start_logits", "end_logits")}
    for values in logits.values():
        values[:, 0] += 7
        values[mask == 0] = -1e9
    return logits


def write_ours(tmp_path, questions, logits, **settings):
    """The files of predictions, from parts of a few windows."""
    output_dir = tmp_path / "ours"
    output_dir.mkdir()
    found = {}
    for part in questions.parts(4):
        first, last = questions.first_window[[part.start, part.stop]]
        found.update((question.id, one) for question, one in answers.find_all(
            questions, part, {name: values[first:last] for name, values in logits.items()},
            AnswerSettings(**settings)))
    capability.write_answers(str(output_dir), found)
    return output_dir


@pytest.mark.parametrize("v2", [False, True])
def test_files_of_predictions_are_those_of_googles_code_byte_for_byte(
        v2, tiny_model, tmp_path, monkeypatch):
    path = write_made_up(tmp_path / "q.json", unanswerable=0.3 if v2 else 0.0)
    assert_predictions_are_googles(path, tiny_model, v2, tmp_path, monkeypatch)


@pytest.mark.parametrize("name, vocab, v2", [
    ("qa_en/squad2_dev.json", "uncased_en", True),
    ("qa_zh/cmrc2018_trial_as_dev.json", "chinese", False)])
def test_real_questions_have_the_windows_and_predictions_of_googles_code(
        name, vocab, v2, tiny_model, tmp_path, monkeypatch):
    path = os.path.join(SHARED_DATA, name)
    if not os.path.exists(path):
        pytest.skip(f"needs {path}")
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]][::17]
    path = write(tmp_path / "q.json", *(
        (paragraph["context"], paragraph["qas"]) for paragraph in paragraphs))
    vocab_file = os.path.join(SHARED_DATA, "vocab", vocab, "vocab.txt")
    with open(vocab_file, encoding="utf-8") as file:
        model = tiny_model.with_config(tmp_path / "config.json", vocab_size=len(file.readlines()))
    assert_predictions_are_googles(
        path, model._replace(vocab_file=vocab_file), v2, tmp_path, monkeypatch)


def assert_predictions_are_googles(path, model, v2, tmp_path, monkeypatch):
    google = googles("run_squad")
    questions = load(path, model, tmp_path, False, version_2_with_negative=v2)
    logits = made_up_logits(questions)
    theirs = googles_features(google, path, model, False, v2, monkeypatch)
    assert features(questions, False)["input_ids"].tolist() == [
        feature.input_ids for feature in theirs]
    google.FLAGS.null_score_diff_threshold = 0.5
    results = [google.RawResult(window.unique_id, *(logits[name][number].tolist() for name in (
        "start_logits", "end_logits"))) for number, window in enumerate(theirs)]
    names = [capability.PREDICTIONS, capability.N_BEST, capability.NULL_ODDS][:3 if v2 else 2]
    google.write_predictions(
        google.read_squad_examples(path, False), theirs, results, 6, 5, True,
        *(str(tmp_path / name) for name in (
            capability.PREDICTIONS, capability.N_BEST, capability.NULL_ODDS)))
    ours = write_ours(tmp_path, questions, logits, n_best_size=6, max_answer_length=5,
                      null_score_diff_threshold=0.5)
    for name in names:
        assert (ours / name).read_text() == (tmp_path / name).read_text(), name
    assert sorted(path.name for path in ours.iterdir()) == sorted(names)


def test_the_report_marks_right_and_predicted_answers_in_their_context():
    """The second "cat" is predicted: from the word that the span begins in."""
    context = "a cat and (the old cat) sat" + " on" * 200
    question = Question("7", "who?", [Answer("old cat", 15), Answer("cat", 19)])
    example = report._example(context, question, Candidate("cat) sat", 0.0, 0.0, 19))
    assert [part for part in example.pop("Context") if part.text] == [
        ("a cat and (the ", "", False), ("old ", "right", True), ("cat", "right, predicted", True),
        (") sat", "predicted", False), (context[27:526], "", False), (" ...", "", True)]
    assert {name: part.text for name, (part,) in example.items()} == {
        "Question": "who?", "Answer": "old cat / cat", "Predicted": "cat) sat"}


def test_a_window_without_room_for_an_answer_has_none():
    question = TokenizedQuestion("", "", [], np.zeros(0, np.int32), [], 2, windows.over(0, 5, 2))
    settings = AnswerSettings()
    found = answers.find(question, [], [], settings, None, may_have_none=False)
    assert found.text == "" and [entry["text"] for entry in found.n_best()] == [""]
    assert capability.result(found).entry == {"answer": "", "probability": 0}
    found = answers.find(question, [], [], settings, None, may_have_none=True)
    assert found.text == "" and found.null_odds > 0
    assert [entry["probability"] for entry in found.n_best()] == [1.0]
    assert capability.result(found).entry["probability"] == 1

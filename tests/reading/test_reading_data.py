"""Questions become the windows of Google's run_squad.py, in a store."""

import json

import numpy as np
import pytest

from conftest import googles
from encoder import windows
from engine.errors import UserError
from reading_files import features, googles_features, load, question, write, write_made_up


def test_a_token_belongs_to_the_window_that_sees_most_around_it():
    """Of 8 tokens, windows over 0–4, 2–6 and 4–7.

    Token 4 has 0, 2 and 0 tokens on its poorer side. Token 3 has one in each of its windows: of
    equal ones the first counts. Token 5, too, but the second of its windows is shorter.
    """
    assert windows.of_most_context(windows.over(8, 5, 2)).tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_answers_that_are_not_where_they_say_are_counted_and_not_learned(
        tiny_model, tmp_path, capsys):
    path = write(tmp_path / "q.json", ("the cat sees a dog", [
        question("right", "the cat", [("cat", 4)]), question("wrong", "the cat", [("cat", 5)]),
        question("second", "the cat", [("dog", 1), ("dog", 15)]),
        question("outside", "the cat", [("dog", 99)])]))
    questions = load(path, tiny_model, tmp_path)
    counted = {"num_questions": 4, "num_unlabelled": 0, "num_left_out": 2, "num_misplaced": 3}
    assert {name: questions.records.facts[name] for name in counted} == counted
    assert features(questions, True)["start_positions"].tolist() == [5, 8]
    assert "3 answers are not where" in "".join(capsys.readouterr())
    held_out = load(path, tiny_model, tmp_path, is_training=False)
    assert len(held_out.records) == 4


def test_questions_to_be_answered_have_different_ids(tiny_model, tmp_path):
    path = write(tmp_path / "q.json", ("the cat", [question("1", "who ?", [("cat", 4)])]), (
        "a dog", [question("2", "what ?", [("dog", 2)]), question(1, "where ?", [("dog", 2)])]))
    with pytest.raises(UserError, match=r"question 1 \('who \?'\) and question 3 \('where \?'\) have "
                       "the same id, '1'"):
        load(path, tiny_model, tmp_path, is_training=False)
    assert len(load(path, tiny_model, tmp_path)) == 3, "answers of a training set are not written"


CONTEXT = {"context": "the cat", "qas": []}


@pytest.mark.parametrize("content, message", [
    ("{\"data\": [1,\n2,\n  {\"a\" 3}]}", "not JSON (Expecting ':' delimiter: line 3"),
    ("\udcff", "is not UTF-8 ('utf-8' codec can't decode byte"),
    ("[]", "must be a JSON object"),
    ("{\"data\": [{\"paragraphs\": [3]}]}", "paragraph 1: must be a JSON object"),
    (json.dumps({"data": [{"paragraphs": [{"qas": []}]}]}), "paragraph 1: has no 'context'"),
    (json.dumps({"data": [{"paragraphs": [{**CONTEXT, "qas": [{"id": 7}]}]}]}),
     "question 1 (7): has no 'question'"),
    (json.dumps({"data": [{"paragraphs": [{**CONTEXT, "qas": [
        question("7", "the", [("cat", "4")])]}]}]}), "'answer_start' is '4', of the wrong type"),
    (json.dumps({"data": [{"paragraphs": [{**CONTEXT, "qas": [question("7", "the", [])]}]}]}),
     "the question 7 has no answer to learn; set --version_2_with_negative"),
    (json.dumps({"data": [{"paragraphs": [CONTEXT]}]}), "of its 0 questions none can be used")])
def test_a_bad_file_is_an_error_of_one_line(content, message, tiny_model, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as error:
        load(str(path), tiny_model, tmp_path)
    assert message in str(error.value) and str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("v2", [False, True])
def test_a_question_that_the_file_says_nothing_of_is_not_learned_as_one_without_an_answer(v2, tiny_model, tmp_path):
    asked = {name: value for name, value in question("7", "the", []).items() if name not in ("answers", "is_impossible")}
    path = write(tmp_path / "q.json", ("the cat", [question("1", "who ?", [("cat", 4)]), {**asked, "answer": "cat"}]))
    with pytest.raises(UserError, match="the question 7 has neither `answers` nor `is_impossible`"):
        load(path, tiny_model, tmp_path, version_2_with_negative=v2)


@pytest.mark.parametrize("unanswerable", [0.0, 0.3])
def test_windows_to_learn_from_are_those_of_googles_code(
        unanswerable, tiny_model, tmp_path, monkeypatch):
    google = googles("run_squad")
    path = write_made_up(tmp_path / "q.json", unanswerable=unanswerable)
    v2 = unanswerable > 0
    questions = load(path, tiny_model, tmp_path, version_2_with_negative=v2)
    theirs = googles_features(google, path, tiny_model, True, v2, monkeypatch)
    assert len(theirs) == len(questions) > len(questions.records)
    for ours, values in features(questions, True).items():
        name = ours.replace("positions", "position")
        assert values.tolist() == [getattr(feature, name) for feature in theirs]


def test_of_a_sample_each_window_has_both_ends_of_its_answer_and_no_padding(tiny_model, tmp_path):
    questions = load(write_made_up(tmp_path / "q.json"), tiny_model, tmp_path)
    sample, whole = questions.sample(20 * 30), features(questions, True)
    assert 30 <= len(sample.indices) < len(questions)
    positions = sample.source.subset(sample.indices).fetch(np.arange(len(sample.indices)), 32)["positions"]
    rows = sample.rows_of(positions[..., np.newaxis])
    first = np.cumsum(rows.counts) - rows.counts
    for number, (index, start) in enumerate(zip(sample.indices, first)):
        its = slice(start, start + rows.counts[number])
        tokens = rows.features[its, 0]
        assert len(set(tokens)) == len(tokens) == min(20, whole["input_mask"][index].sum())
        assert tokens.max() < whole["input_mask"][index].sum()
        for output, name in enumerate(("start_positions", "end_positions")):
            assert tokens[rows.labels[its, output]].tolist() == [whole[name][index]]

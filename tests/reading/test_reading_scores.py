"""Answers are compared, and sets scored, as the official scripts do; the values are worked by hand.

Their figures were compared with those of the scripts on real questions, to the last digit.
"""

import pytest

from reading import scores
from reading.scores import Answered


@pytest.mark.parametrize("prediction, answers, exact, f1", [
    ("the Dog!", ["dog"], 1, 1),
    ("the old dog", ["dog"], 0, 2 / 3),
    ("dog dog", ["dog"], 0, 2 / 3),
    ("a cat", ["dog", "an old cat"], 0, 2 / 3),
    ("cat", ["dog"], 0, 0),
    ("the", ["a"], 1, 0)])  # nothing is left of both: so it is in SQuAD 1.1's script
def test_squad_compares_words_without_articles_and_punctuation(prediction, answers, exact, f1):
    assert scores.squad(prediction, answers) == (exact, pytest.approx(f1))


@pytest.mark.parametrize("prediction, answers, exact, f1", [
    ("", [], 1, 1), ("the", [], 1, 1), ("dog", [], 0, 0), ("", ["dog"], 0, 0),
    ("", ["the"], 1, 1), ("dog", ["the", "dog"], 1, 1)])
def test_squad_2_has_questions_without_answers(prediction, answers, exact, f1):
    assert scores.squad_2(prediction, answers) == (exact, f1)


@pytest.mark.parametrize("prediction, answers, exact, f1", [
    ("《红楼梦》", ["红楼梦"], 1, 1),
    ("红楼", ["红楼梦"], 0, 2 * 1 * (2 / 3) / (1 + 2 / 3)),
    ("红x梦", ["红楼梦"], 0, 1 / 3),  # a run of one, of three segments each
    ("Windows 98", ["windows", "windows98"], 0, 2 / 3),
    ("。", ["，"], 1, 0)])
def test_cmrc_compares_the_longest_run_of_characters(prediction, answers, exact, f1):
    assert scores.cmrc(prediction, answers) == (exact, pytest.approx(f1))


@pytest.mark.parametrize("text, words", [
    ("3.14, 1,000", ["3.14", ",", "1,000"]),
    ("a.b. ", ["a.b", "."]),
    ('("robert")', ["(", "``", "robert", "''", ")"]),
    ("john's don't", ["john", "'s", "do", "n't"]),
    ("wait... 50%", ["wait", "...", "50", "%"])])
def test_words_between_chinese_characters_are_those_of_nltk(text, words):
    assert scores.treebank_words(text) == words


def answered(measure, *questions):
    """Each question: what is predicted, the right answers, the odds, the tokens of the context."""
    return [Answered(measure(predicted, right), right, bool(predicted), *rest)
            for predicted, right, *rest in questions]


def test_scores_are_in_percent_of_all_questions():
    found = answered(scores.squad, ("old dog", ["dog"], 0.0, 65), ("cat", ["cat", "dog"], 0.0, 9),
                     ("dog", ["dog"], 0.0, 128))
    f1 = pytest.approx(100 * (2 / 3 + 2) / 3)
    assert scores.results(found, may_have_none=False) == {
        "exact_match": pytest.approx(100 * 2 / 3), "f1": f1}
    assert [tuple(row.values()) for row in scores.table(found, may_have_none=False)] == [
        ("up to 64 tokens", 1, 100, 100),
        ("up to 128 tokens", 2, 50, pytest.approx(100 * (2 / 3 + 1) / 2))]


def test_the_best_threshold_is_the_odds_of_the_last_question_to_answer():
    """Sorted by odds: right, wrongly answered, right; the fourth has none, and is not answered.

    Without any answer 2 of 4 are right. Answering the first makes 3, the second 2, the third 3.
    """
    found = answered(scores.squad_2, ("tree", [], 0.5), ("dog", ["dog"], -1.5), ("", [], 3.0),
                     ("bird", ["bird"], 2.0))
    assert scores.results(found, may_have_none=True) == {
        "exact": 75.0, "f1": 75.0, "total": 4, "HasAns_exact": 100.0, "HasAns_f1": 100.0,
        "HasAns_total": 2, "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2,
        "best_exact": 75.0, "best_exact_thresh": -1.5, "best_f1": 75.0, "best_f1_thresh": -1.5}
    assert [tuple(row.values())[:3] for row in scores.table(found, may_have_none=True)] == [
        ("up to 64 tokens", 4, 75), ("has an answer", 2, 100), ("has none", 2, 50)]

"""The report shows how similar positives and negatives are, recall, and the pairs farthest off."""

import collections
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from conftest import sentences
from runs.report_page import number
from similarity import data, evaluation, report
from similarity.files import open_file
from similarity_files import write
from similarity_reference import unit

SIZE = 6


class Mistake(NamedTuple):
    """A pair on the page."""
    first: str
    second: str
    label: str
    predicted: str


@pytest.fixture
def shown(tiny_model, tmp_path):
    """Measures a file with random vectors: what is shown of it, and its texts with their vectors."""
    def measure(rows):
        texts = data.load(open_file(str(write(tmp_path / "dev.tsv", rows)), {}, None, labelled=True),
                          tiny_model.encoding(), "", str(tmp_path / "store"))
        vectors = unit(np.random.RandomState(0).normal(size=(len(texts), SIZE))).astype(np.float32)
        job = mock.Mock()
        job.model.similarity.matryoshka = ()
        measured = evaluation.measure(job, texts, lambda source: {"vectors": vectors})
        of_text = {text: vectors[number] for row, numbers in zip(rows, texts.numbers)
                   for text, number in zip(row, numbers)}
        plots, texts = report.page(measured)
        mistakes = [Mistake(*(part.text for part, in example.values())) for example in texts.content]
        return measured, plots.content, mistakes, of_text
    return measure


def test_of_pairs_the_nearest_negatives_and_the_farthest_positives_are_shown(shown):
    anchors, documents = sentences(30, seed=1), sentences(12, seed=2)
    rows = [(anchor, documents[number % 12]) for number, anchor in enumerate(anchors)]
    rows.append((anchors[0], documents[5]))
    measured, (distribution, recall), mistakes, vector = shown(rows)
    known = collections.defaultdict(set)
    for anchor, document in rows:
        known[anchor].add(document)
    own = [vector[anchor] @ vector[document] for anchor, document in rows]
    best = {anchor: max((vector[anchor] @ vector[document], document) for document in documents
                        if document not in known[anchor]) for anchor in known}
    similarities = measured.shown.similarities
    np.testing.assert_allclose(similarities["positives"], own, atol=1e-6)
    np.testing.assert_allclose(np.sort(similarities["nearest negatives"]),
                               sorted(score for score, _ in best.values()), atol=1e-6)
    farthest = sorted((score, row) for score, row in zip(own, rows))[:10]
    nearest = sorted(((score, (anchor, document)) for anchor, (score, document) in best.items()),
                     reverse=True)[:10]
    for label, expected in (("positive", farthest), ("negative", nearest)):
        assert [mistake for mistake in mistakes if mistake.label == label] == [
            Mistake(*pair, label, number(score)) for score, pair in expected]
    for shares in distribution.lines.values():
        assert sum(shares) == pytest.approx(1)
    values, = recall.lines.values()
    assert [values[k - 1] for k in (1, 5, 10)] == [
        measured.results[f"recall_at_{k}"] for k in (1, 5, 10)]
    assert list(values) == sorted(values)


def test_of_scores_the_pairs_that_contradict_them_most_are_shown(shown):
    rows = [(first, second, str(score)) for first, second, score in zip(
        sentences(30, seed=1), sentences(30, seed=2), np.arange(30) % 6)]
    measured, (_,), mistakes, vector = shown(rows)
    cosines = [vector[first] @ vector[second] for first, second, _ in rows]
    is_high = [float(score) > 2.5 for *_, score in rows]
    high, low = (sorted(cosine for cosine, other in zip(cosines, is_high) if other == wanted)
                 for wanted in (True, False))
    np.testing.assert_allclose(np.sort(measured.shown.similarities["high scores"]), high, atol=1e-6)
    np.testing.assert_allclose(np.sort(measured.shown.similarities["low scores"]), low, atol=1e-6)
    for is_high, farthest in ((True, high), (False, low[::-1])):
        assert [mistake.predicted for mistake in mistakes if (float(mistake.label) > 2.5) == is_high] == [
            number(similarity) for similarity in farthest[:10]]
    for mistake in mistakes:
        assert number(vector[mistake.first] @ vector[mistake.second]) == mistake.predicted
        assert (mistake.first, mistake.second, f"{float(mistake.label):.0f}") in rows


def test_a_set_in_which_everything_is_found_has_no_negatives(shown):
    measured, (plot,), (mistake,), _ = shown([("a cat", "a dog")])
    assert measured.results["recall_at_1"] == 1 and list(plot.lines) == ["positives"]
    assert mistake[:3] == ("a cat", "a dog", "positive")

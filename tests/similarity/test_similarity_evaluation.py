"""Measures equal SciPy's and scikit-learn's, and a table worked out by hand; the search is exact."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from conftest import sentences
from similarity import data, evaluation, nearest
from similarity.capability import Similarity
from similarity.evaluation import measure, pair_measures, retrieve
from similarity.files import open_file
from similarity_files import write


@pytest.fixture
def random():
    return np.random.RandomState(3)


def test_pairs_are_compared_in_blocks(random, monkeypatch):
    monkeypatch.setattr(evaluation, "_BLOCK", 5)
    vectors, numbers = random.normal(size=(30, 4)).astype(np.float32), random.randint(30, size=(12, 3))
    np.testing.assert_allclose(evaluation.similarities(vectors, numbers), [
        [vectors[anchor] @ vectors[other] for other in others] for anchor, *others in numbers], atol=1e-6)


@pytest.mark.parametrize("most", [2, 6])
def test_correlations_are_scipys_with_ties_in_both(most, random):
    labels = random.randint(most, size=200) / max(1, most - 2)
    cosines = np.round(labels / 2 + random.normal(scale=0.4, size=200), 1).astype(np.float32)
    measures = pair_measures(cosines, labels)
    assert measures["spearman"] == pytest.approx(
        scipy.stats.pearsonr(scipy.stats.rankdata(cosines), scipy.stats.rankdata(labels))[0])
    assert measures["pearson"] == pytest.approx(np.corrcoef(cosines, labels)[0, 1])
    assert len(measures) == (5 if most == 2 else 2)
    if most == 2:
        f1 = {threshold: sklearn.metrics.f1_score(labels, cosines >= threshold)
              for threshold in cosines}
        assert measures["best_f1"] == pytest.approx(max(f1.values()))
        assert f1[np.float32(measures["best_f1_threshold"])] == max(f1.values())
        assert measures["average_precision"] == pytest.approx(
            sklearn.metrics.average_precision_score(labels, cosines))


def test_of_two_thresholds_with_the_same_f1_the_larger_is_taken():
    # From 0.9 on: one of two, and right; from 0.3 on: two of four are right. F1 is 2/3 for both.
    measures = pair_measures(np.array([0.9, 0.5, 0.4, 0.3]), np.array([1, 0, 0, 1]))
    assert measures["best_f1"] == pytest.approx(2 / 3)
    assert measures["best_f1_threshold"] == pytest.approx(0.9)


def test_what_is_undefined_is_not_a_number():
    equal = pair_measures(np.array([0.1, 0.2]), np.array([3, 3]))
    assert set(equal) == {"spearman", "pearson"} and all(map(math.isnan, equal.values()))
    without = pair_measures(np.array([0.1, 0.2]), np.array([0, 0]))
    assert len(without) == 5 and all(map(math.isnan, without.values()))
    assert pair_measures(np.array([0.1, 0.2]), np.array([1, 1]))["average_precision"] == 1
    damaged = pair_measures(np.array([math.nan, 0.2]), np.array([1, 0]))
    assert len(damaged) == 5 and all(map(math.isnan, damaged.values()))


def test_retrieval_is_what_a_table_worked_out_by_hand_says():
    documents = np.eye(12, dtype=np.float32)
    # The documents of each query, the best first; the others have 0 and follow in their order.
    ranking = [[3, 1], [1, 7, 3], [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]]
    queries = np.zeros((3, 12), np.float32)
    for row, order in enumerate(ranking):
        queries[row, order] = np.linspace(1, 0.1, len(order))
    # Ranks: query 0 finds 3 at 1 and 0 at 3; query 1 finds 3 at 3; query 2 finds 0 at 11.
    relevant = np.array([(0, 0), (0, 3), (1, 3), (2, 0)])
    ideal_of_two = 1 + 1 / math.log2(3)
    assert retrieve(queries, documents, relevant).measures() == pytest.approx({
        "recall_at_1": (1 / 2 + 0 + 0) / 3, "recall_at_5": (1 + 1 + 0) / 3,
        "recall_at_10": (1 + 1 + 0) / 3, "mrr_at_10": (1 + 1 / 3 + 0) / 3,
        "ndcg_at_10": ((1 + 1 / 2) / ideal_of_two + 1 / 2 + 0) / 3})


def test_gain_is_scikit_learns_also_with_more_relevant_documents_than_ranks(random):
    queries, documents = random.normal(size=(9, 4)), random.normal(size=(40, 4))
    gains = random.random_sample((9, 40)) < random.random_sample((9, 1)) / 2
    gains[:, 7] = True
    relevant = np.argwhere(gains)
    assert retrieve(queries, documents, relevant).measures()["ndcg_at_10"] == pytest.approx(
        sklearn.metrics.ndcg_score(gains, queries @ documents.T, k=10))


def test_fewer_documents_than_ranks_are_all_found():
    vectors = np.eye(2, dtype=np.float32)
    found = retrieve(vectors, vectors, np.array([(0, 0), (1, 0)]))
    assert found.measures() == pytest.approx({
        "recall_at_1": 1 / 2, "recall_at_5": 1, "recall_at_10": 1, "mrr_at_10": 3 / 4,
        "ndcg_at_10": (1 + 1 / math.log2(3)) / 2})


def test_a_query_s_own_text_is_no_document_of_it_unless_it_is_relevant():
    """Twelve texts: 0 and 1, 2 and 3 ... belong together, and each is a query and a document."""
    vectors = np.repeat(np.eye(6, dtype=np.float32), 2, axis=0)
    vectors[::2] = vectors[::2] * 0.6 + 0.1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = np.arange(12)
    relevant = np.stack([numbers, numbers ^ 1], axis=1)
    measures = retrieve(vectors, vectors, relevant, numbers).measures()
    assert set(measures.values()) == {1.0}
    assert retrieve(vectors, vectors, relevant).measures()["recall_at_1"] == 0
    own = np.stack([numbers, numbers], axis=1)
    assert retrieve(vectors, vectors, own, numbers).measures()["recall_at_1"] == 1


def test_a_query_s_own_text_is_known_without_the_prefix_of_queries(tiny_model, tmp_path):
    rows = [row for first, second in zip(sentences(6, 1), sentences(6, 2)) for row in ((first, second), (second, first))]
    file = open_file(str(write(tmp_path / "dev.tsv", rows)), {}, None, labelled=True)
    texts = data.load(file, tiny_model.encoding(24), "query: ", str(tmp_path / "store"))
    anchors, positives = texts.numbers.T
    vectors = np.eye(len(texts), dtype=np.float32)
    for number, anchor in enumerate(anchors):  # its own text is the nearest, then its positive
        vectors[anchor] = 0.8 * vectors[positives[number ^ 1]] + 0.6 * vectors[positives[number]]
    job = SimpleNamespace(model=SimpleNamespace(similarity=Similarity()), settings=SimpleNamespace(output_dir=""))
    measured = measure(job, texts, lambda source: {"vectors": vectors})
    assert measured.results["recall_at_1"] == 1


@pytest.mark.parametrize("k", [1, 3, 50, 1000])
def test_the_nearest_are_those_of_the_whole_matrix_in_blocks_of_any_size(k, random, monkeypatch):
    # Small integers: products are exact, and many are equal.
    queries, documents = (random.randint(-2, 3, size=(count, 4)).astype(np.float32)
                          for count in (23, 400))
    monkeypatch.setattr(nearest, "_QUERIES", 5)
    monkeypatch.setattr(nearest, "_DOCUMENTS", 60)
    scores, indices = nearest.nearest(queries, documents, k)
    matrix = queries @ documents.T
    expected = np.argsort(-matrix, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(matrix, expected, axis=1))


def test_equal_documents_keep_their_order_wherever_they_stand(random):
    base = random.normal(size=(40, 384)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    documents = np.tile(base, (30, 1))
    for queries in (base[:1], base):
        _, indices = nearest.nearest(queries, documents, 45)
        first = indices[:, :30]
        np.testing.assert_array_equal(first, np.arange(len(queries))[:, np.newaxis] + 40 * np.arange(30))
        assert (np.diff(indices[:, 30:45]) == 40).all(), "of the next best text the first ones"


def test_what_is_not_a_number_comes_last(random):
    queries, documents = random.normal(size=(3, 4)), random.normal(size=(30, 4))
    documents[[0, 4, 29]] = np.nan
    _, indices = nearest.nearest(queries, documents, 30)
    assert np.isin(indices[:, -3:], [0, 4, 29]).all()
    np.testing.assert_array_equal(
        indices[:, :5], np.argsort(np.nan_to_num(-queries @ documents.T, nan=9e9), axis=1)[:, :5])
    assert nearest.nearest(queries * np.nan, documents, 7)[1].shape == (3, 7)


def test_without_queries_or_documents_nothing_is_found():
    vectors = np.ones((3, 2), np.float32)
    assert nearest.nearest(vectors[:0], vectors, 2)[0].shape == (0, 2)
    assert nearest.nearest(vectors, vectors[:0], 2)[1].shape == (3, 0)

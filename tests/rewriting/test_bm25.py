"""BM25 finds what its formula says."""

import random

import numpy as np

from engine.data.store import Records
from rewriting import bm25
from rewriting_files import score

WORDS = [f"w{number}" for number in range(30)]


def made_up(count, seed):
    generator = random.Random(seed)
    return [" ".join(generator.choice(WORDS[:5] if generator.random() < 0.5 else WORDS)
                     for _ in range(generator.randint(0, 8))) for _ in range(count)]


def index_of(phrases):
    return bm25.Index(Records.of_chunk(bm25.encode(phrases)))


def test_the_best_are_those_of_the_formula_in_its_order():
    phrases, queries = made_up(60, 1), made_up(11, 2) + ["w3 w3 w4", "unknown", ""]
    allowed = np.random.RandomState(0).rand(60) < 0.7
    index = index_of(phrases)
    for query in queries:
        rows = index.top(query, 10, allowed)
        scores = np.array([score(query, phrase, phrases) for phrase in phrases])
        scores[~allowed] = 0
        expected = sorted(np.flatnonzero(scores), key=lambda row: -scores[row])[:10]
        np.testing.assert_allclose(scores[rows], scores[expected], rtol=1e-5)


def test_of_equal_phrases_the_first_come_first():
    found = index_of(["x", "a b", "x", "a b", "a b"]).top("a b", 2, np.ones(5, bool))
    assert found.tolist() == [1, 3]


def test_chinese_is_found_by_ideographs_and_pairs_of_them():
    phrases = ["房间很大", "大房子很贵", "交通方便"]
    found = index_of(phrases).top("酒店房间", 3, np.ones(3, bool))
    assert found.tolist() == [0, 1]

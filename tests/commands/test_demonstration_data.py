"""Proves that the demonstration task is a task: balanced, unsolvable by words alone, repeatable."""

import collections
import random

import pytest

from scripts import make_demonstration_data
from scripts.make_demonstration_data import (
    CLASS_WORDS, GRAMMAR, SPLITS, generate, is_sentence, make_examples, scramble)
from tasks.data import read_examples
from tasks.table import TASKS


@pytest.fixture(scope="module")
def splits():
    return make_examples()


def bag(sentence):
    return tuple(sorted(sentence.lower().rstrip(".").split()))


def test_each_bag_of_words_has_one_example_of_each_label_in_one_split(splits):
    places = collections.defaultdict(list)
    for split, examples in splits.items():
        for example in examples:
            places[bag(example.sentence)].append((split, example.label))
    for words, where in places.items():
        assert sorted(label for _, label in where) == [0, 1], words
        assert len({split for split, _ in where}) == 1, words
    assert {split: len(examples) for split, examples in splits.items()} == SPLITS


def test_labels_are_not_in_the_order_of_the_examples(splits):
    labels = [example.label for example in splits["train"]]
    assert 0.4 < sum(a == b for a, b in zip(labels, labels[1:])) / len(labels) < 0.6


def test_the_same_seed_gives_the_same_examples_and_another_gives_others(splits):
    assert make_examples() == splits
    assert make_examples(seed=8) != splits


@pytest.mark.parametrize("sentence, expected", [
    ("Anna sleeps", True), ("the dogs sleep", True), ("a dog that sleeps sees Anna", True),
    ("near the river Peter and Anna must wait", True),
    ("every teacher says that two grey dogs want to follow Maria", True),
    ("the dog sleep", False), ("dogs sleeps", False), ("sleeps Anna", False), ("Anna", False),
    ("the the dog sleeps", False), ("Anna sleeps quickly again", False), ("", False)])
def test_the_grammar_knows_its_sentences(sentence, expected):
    assert is_sentence(sentence.split()) == expected


def test_what_the_grammar_makes_it_knows_and_what_is_scrambled_it_does_not():
    generator = random.Random(0)
    for _ in range(200):
        words = generate("CLAUSE", generator)
        assert is_sentence(words)
        scrambled = scramble(words, generator)
        assert sorted(scrambled) == sorted(words) and not is_sentence(scrambled)


def test_no_word_is_in_two_classes():
    words = [word for members in CLASS_WORDS.values() for word in members]
    literals = {part for expansions in GRAMMAR.values() for expansion in expansions
                for part in expansion.split() if part not in GRAMMAR and part not in CLASS_WORDS}
    assert len(words) == len(set(words)) and not literals & set(words)


def test_the_written_files_are_read_as_cola(splits, tmp_path):
    values = make_demonstration_data.define_flags()
    values(["make_demonstration_data", f"--output_dir={tmp_path}"])
    make_demonstration_data.main(values)
    task = TASKS["cola"]
    for name, split in (("train", task.train), ("dev", task.dev), ("test", task.test)):
        read = list(read_examples(task, split, str(tmp_path)))
        assert [example.text_a for example in read] == [text for text, _ in splits[name]]
        expected = [None if name == "test" else label for _, label in splits[name]]
        assert [example.label for example in read] == expected

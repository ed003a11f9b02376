"""Proves that the demonstration task is a task: balanced, and unsolvable by words alone."""

import collections


from scripts.make_demonstration_data import (
    CLASS_WORDS, SPLITS, can_become, write_examples)
from task_files import our_examples


def test_each_bag_of_words_has_one_example_of_each_label_in_one_set(tmp_path):
    write_examples(str(tmp_path))
    places = collections.defaultdict(list)
    for name, size in SPLITS.items():
        examples = our_examples("cola", name, str(tmp_path))
        assert len(examples) == size
        for (text,), label in examples:
            words = text[0].lower() + text[1:-1] if text.split()[0] not in CLASS_WORDS["name"] else (
                text[:-1])
            is_sentence = can_become(("SENTENCE",), tuple(words.split()))
            assert label in (is_sentence, None)
            places[tuple(sorted(text.lower().rstrip(".").split()))].append((name, is_sentence))
    for words, where in places.items():
        assert sorted(label for _, label in where) == [False, True], words
        assert len({name for name, _ in where}) == 1, words
    labels = [example.label for example in our_examples("cola", "train", str(tmp_path))]
    assert 0.4 < sum(a == b for a, b in zip(labels, labels[1:])) / len(labels) < 0.6

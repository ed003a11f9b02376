"""Where the words of a text are, which may be replaced, and what replacing them leaves alone."""

import numpy as np
import pytest

from augmentation.variants import variants, words_of


def replaceable(text):
    return [word.text for word in words_of(text) if word.may_be_replaced]


@pytest.mark.parametrize("text", [
    "A plain sentence .", "  Don't you\tsee?  ", "It's \"quoted\" (twice)...", "", " ",
    "零件 are ﬁne—naïve\u200bté", "tab\u00a0space\ufeff mark\x00ed", "e\u0301te\u0301 été",
    "a\u200ba aa", "𠀀𠀁 rare", "1984 x2"])
def test_each_word_is_where_the_text_has_it(text):
    end = 0
    for word in words_of(text):
        assert end <= word.start < word.end <= len(text)
        inside = text[word.start:word.end]
        assert "".join(character for character in inside if character in word.text) == word.text
        assert inside[0] == word.text[0] and inside[-1] == word.text[-1]
        end = word.end


def test_words_of_letters_that_are_no_stop_words_may_be_replaced():
    assert replaceable("The old dogs don't see 2 trees, U2's été or ...") == [
        "old", "dogs", "see", "trees", "été"]
    assert replaceable("我不喜欢这部电影。") == ["喜", "欢", "部", "电", "影"]


def vary(text, candidates, rounds=200, probability=0.5, seed=0):
    words = [word for word in words_of(text) if word.may_be_replaced]
    return variants(text, words, candidates, num_rounds=rounds, probability=probability,
                    generator=np.random.RandomState(seed))


def test_all_but_the_replaced_words_stays_as_it_is():
    text = ' "Old dogs"  don\'t\tSEE (tall)trees!'
    found = vary(text, [["new", "young"], [], ["hear"], ["small"], ["rivers"]])
    assert found[0] == text and len(found) == len(set(found)) == 3 * 2 * 2 * 2
    assert ' "Young dogs"  don\'t\thear (tall)rivers!' in found
    assert all(variant.startswith(' "') and "dogs\"  don't\t" in variant for variant in found)

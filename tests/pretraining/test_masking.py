"""Masks: shares, budgets and whole words, against hand-worked cases.

`test_create_data.py` tries any text: the targets are its own tokens, and nothing else changes.
"""

import numpy as np

from conftest import on_tensorflow_1
from pretraining import masking
from pretraining.objectives import SPAN, Settings

CLS, SEP, MASK, VOCAB_SIZE = 1, 2, 3, 1000
LENGTH = 48


def records(texts):
    """Pairs of texts; a text is a list of words, a word its number of tokens."""
    shape = [len(texts), LENGTH]
    ids, (first, second, starts) = np.zeros(shape, np.int32), np.zeros([3, *shape], bool)
    lengths = np.zeros(len(texts), int)
    generator = np.random.RandomState(0)
    for row, pair in enumerate(texts):
        place = 1
        for text, words in zip((first, second), pair):
            starts[row, place + np.cumsum([0, *words[:-1]])] = True
            text[row, place:place + sum(words)] = True
            place += sum(words) + 1
            ids[row, place - 1] = SEP
        lengths[row] = place
    ids[:, 0] = CLS
    ids[first | second] = generator.randint(10, VOCAB_SIZE, (first | second).sum())
    return masking.Records(ids, first, second, starts, lengths)


def draw(texts, masked_lm_prob=0.15, max_predictions_per_seq=20, in_second=False, seed=0):
    options = Settings(masked_lm_prob=masked_lm_prob, max_predictions_per_seq=max_predictions_per_seq,
                       objective=SPAN if in_second else "mlm_nsp")
    return masking.draw(records(texts), options, MASK, VOCAB_SIZE, np.random.RandomState(seed))


def guessed(masks):
    """The places of each record that are to be guessed."""
    return [positions[weights > 0].tolist() for positions, weights
            in zip(masks["masked_lm_positions"], masks["masked_lm_weights"])]




def test_single_tokens_use_the_whole_budget_of_the_original():
    lengths = [1, 3, 7, 13, 17, 30, 45]  # with three special ones 0.6, 0.9, 1.5, … to be masked
    masks = draw([([1], [1] * (n - 1)) for n in lengths])
    expected = [max(1, round((n + 3) * 0.15)) for n in lengths]
    assert [len(places) for places in guessed(masks)] == expected


def test_words_are_masked_as_a_whole_and_those_that_are_too_long_are_skipped():
    # Seven words of three tokens, 23 tokens with [CLS] and [SEP]: round(3.45) = 3 is one word.
    texts, starts = [([3] * 7,)] * 300, range(1, 22, 3)
    assert {tuple(places) for places in guessed(draw(texts))} == {
        (s, s + 1, s + 2) for s in starts}
    # A budget of 4 has no room for a second word of three, and 2 none for any.
    assert {len(places) for places in guessed(draw(texts, 0.174))} == {3}
    assert {len(places) for places in guessed(draw(texts, max_predictions_per_seq=2))} == {0}


@on_tensorflow_1
def test_eighty_ten_ten_and_every_place_alike():
    masks = draw([([1] * 20, [1] * 20)] * 8000)
    rows, slots = np.nonzero(masks["masked_lm_weights"])
    places = masks["masked_lm_positions"][rows, slots]
    shown = masks["input_ids"][rows, places]
    original = masks["masked_lm_ids"][rows, slots]
    count = len(rows)  # 48,000: a share's standard deviation is below 0.002
    assert abs((shown == MASK).mean() - 0.8) < 0.006
    assert abs((shown == original).mean() - 0.1001) < 0.006
    random_ones = shown[(shown != MASK) & (shown != original)]
    assert abs(len(random_ones) / count - 0.0999) < 0.005
    assert abs(random_ones.mean() - VOCAB_SIZE / 2) < 20  # any id, each alike
    counts = np.bincount(places, minlength=LENGTH)[np.r_[1:21, 22:42]]
    assert abs(counts / (count / 40) - 1).max() < 0.12


def test_the_second_text_loses_as_many_tokens_as_the_first_has_anywhere():
    texts = [([1, 2], [1] * 8)] * 500
    # [CLS] a a a [SEP] b … b [SEP]: three in a row among the places 5 to 12.
    assert {tuple(places) for places in guessed(draw(texts, in_second=True))} == {
        (s, s + 1, s + 2) for s in range(5, 11)}
    shorter = guessed(draw(texts, max_predictions_per_seq=2, in_second=True))
    assert {len(places) for places in shorter} == {2}

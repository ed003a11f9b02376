"""Masks: shares, budgets, whole words and spans, against hand-worked cases and over any input."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from conftest import on_tensorflow_1
from pretraining import counter_rng, masking

CLS, SEP, MASK, VOCAB_SIZE = 1, 2, 3, 1000
LENGTH = 48


def scheme(shape="words", masked_lm_prob=0.15, max_predictions_per_seq=20):
    return masking.Scheme(shape, masked_lm_prob, max_predictions_per_seq, MASK, (CLS, SEP),
                          VOCAB_SIZE)


def records(texts, length=LENGTH):
    """Features of pairs of texts; a text is a list of words, a word its number of tokens."""
    names = ("input_ids", "input_mask", "segment_ids", "word_starts")
    features = {name: np.zeros([len(texts), length], np.int32) for name in names}
    generator = np.random.RandomState(0)
    for row, pair in enumerate(texts):
        ids, segments, starts = [CLS], [0], [0]
        for segment, words in enumerate(pair):
            for size in words:
                ids += list(generator.randint(10, VOCAB_SIZE, size))
                segments += [segment] * size
                starts += [1] + [0] * (size - 1)
            ids.append(SEP)
            segments.append(segment)
            starts.append(0)
        for name, values in zip(names, (ids, [1] * len(ids), segments, starts)):
            features[name][row, :len(ids)] = values
    return features


def keys(count, seed=0):
    return counter_rng.keys_of(seed, 0, np.arange(count))


def guessed(masks):
    """The places of each record that are to be guessed."""
    return [positions[weights > 0].tolist() for positions, weights
            in zip(masks["masked_lm_positions"], masks["masked_lm_weights"])]


words = strategies.lists(strategies.integers(1, 4), min_size=1, max_size=5)


@given(texts=strategies.lists(strategies.tuples(words, words), min_size=1, max_size=4),
       shape=strategies.sampled_from(sorted(masking.SHAPES)), seed=strategies.integers(0, 99),
       share=strategies.sampled_from([0.0, 0.15, 0.5, 1.0]), at_most=strategies.integers(1, 50))
@settings(deadline=None, max_examples=100)
def test_targets_are_the_original_tokens_and_nothing_else_changes(texts, shape, seed, share,
                                                                  at_most):
    features = records(texts)
    masks = masking.draw(features, keys(len(texts), seed), scheme(shape, share, at_most))
    for row, places in enumerate(guessed(masks)):
        original, shown = features["input_ids"][row], masks["input_ids"][row]
        assert places == sorted(set(places)) and len(places) <= at_most
        assert original[places].tolist() == masks["masked_lm_ids"][row][:len(places)].tolist()
        assert not np.isin(original[places], [0, CLS, SEP]).any()
        others = np.setdiff1d(np.arange(LENGTH), places)
        assert (original[others] == shown[others]).all()
        assert not masks["masked_lm_positions"][row][len(places):].any()
        assert not masks["masked_lm_ids"][row][len(places):].any()
        if shape != "second_text":
            budget = min(at_most, max(1, round(int(features["input_mask"][row].sum()) * share)))
            assert len(places) <= budget


@pytest.mark.parametrize("shape", ["words", "spans"])
def test_single_tokens_use_the_whole_budget_of_the_original(shape):
    lengths = [1, 3, 7, 13, 17, 30, 45]  # with three special ones 0.6, 0.9, 1.5, … to be masked
    masks = masking.draw(records([([1], [1] * (n - 1)) for n in lengths]), keys(7), scheme(shape))
    expected = [max(1, round((n + 3) * 0.15)) for n in lengths]
    assert [len(places) for places in guessed(masks)] == expected


def test_words_are_masked_as_a_whole_and_those_that_are_too_long_are_skipped():
    # Seven words of three tokens, 23 tokens with [CLS] and [SEP]: round(3.45) = 3 is one word.
    features = records([([3] * 7,)] * 300)
    starts = range(1, 22, 3)
    chosen = guessed(masking.draw(features, keys(300), scheme()))
    assert {tuple(places) for places in chosen} == {(s, s + 1, s + 2) for s in starts}
    # A budget of 4 has no room for a second word of three, and 2 none for any.
    assert {len(places) for places in
            guessed(masking.draw(features, keys(300), scheme(masked_lm_prob=0.174)))} == {3}
    assert {len(places) for places in
            guessed(masking.draw(features, keys(300), scheme(max_predictions_per_seq=2)))} == {0}


@on_tensorflow_1
def test_eighty_ten_ten_and_every_place_alike():
    features = records([([1] * 20, [1] * 20)] * 8000)
    masks = masking.draw(features, keys(8000), scheme())
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


@on_tensorflow_1
def test_spans_have_the_lengths_of_spanbert_and_one_replacement_each():
    features = records([([1] * 500,)] * 400, length=502)
    # A small budget: whole runs, but for the last, rarely touch each other.
    masks = masking.draw(features, keys(400), scheme("spans", 0.06, 502))
    lengths, mixed = [], 0
    for row, places in enumerate(guessed(masks)):
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        lengths += [len(run) for run in runs]
        changed = masks["input_ids"][row] == MASK
        mixed += sum(0 < changed[run].sum() < len(run) for run in runs)
    assert abs(np.mean(lengths) - 3.8) < 0.25  # SpanBERT, section 3.1
    assert mixed < 0.05 * len(lengths)  # runs that happen to touch


def test_the_second_text_loses_as_many_tokens_as_the_first_has_anywhere():
    features = records([([1, 2], [1] * 8)] * 500)
    chosen = guessed(masking.draw(features, keys(500), scheme("second_text")))
    # [CLS] a a a [SEP] b … b [SEP]: three in a row among the places 5 to 12.
    assert {tuple(places) for places in chosen} == {(s, s + 1, s + 2) for s in range(5, 11)}
    shorter = scheme("second_text", max_predictions_per_seq=2)
    assert {len(places) for places in guessed(masking.draw(features, keys(500), shorter))} == {2}


@pytest.mark.parametrize("shape", sorted(masking.SHAPES))
def test_a_mask_depends_on_neither_batch_nor_padding_but_on_the_key(shape):
    texts = [([1, 2, 1], [2, 1, 1, 3, 1, 1, 1, 2]), ([1] * 3, [1] * 9), ([2, 2], [1] * 5)]
    together = masking.draw(records(texts), keys(3), scheme(shape))
    wider = records(texts, length=LENGTH + 8)
    for row in range(3):
        alone = masking.draw({name: values[[row]] for name, values in wider.items()},
                             keys(3)[[row]], scheme(shape))
        assert (alone["input_ids"][0, :LENGTH] == together["input_ids"][row]).all()
        assert (alone["masked_lm_positions"][0] == together["masked_lm_positions"][row]).all()
    many = masking.draw(records(texts[:1] * 50), keys(50), scheme(shape))
    assert len({tuple(places) for places in guessed(many)}) > 1


def test_the_bits_are_those_of_splitmix64_on_every_numpy():
    # The first outputs of splitmix64 from the seed 0, as in its published test vectors.
    assert counter_rng.mix(np.zeros(1, np.uint64), np.arange(3)).tolist() == [
        0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("count", [1, 2, 3, 64, 65, 1000])
def test_a_permutation_has_every_number_once(count):
    permutations = [counter_rng.permuted(np.arange(count), count, seed) for seed in range(3)]
    for permutation in permutations:
        assert sorted(permutation) == list(range(count))
        half = counter_rng.permuted(np.arange(count // 2, count), count, 0)
        assert (half == permutations[0][count // 2:]).all()
    if count > 3:
        assert len({tuple(permutation) for permutation in permutations}) == 3

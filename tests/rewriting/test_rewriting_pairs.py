"""A pair of slot and phrase as the model reads it: the slot is whole and where it belongs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import VOCAB
from engine.data import store
from rewriting import data, pairs
from rewriting.slot_files import SlotExample
from rewriting_files import write_slots
from tokenization import FullTokenizer

PIECES = ("cat", "unlikes", "dogs and", " ", ".", ", ", "?!", "[MASK]", "[SEP]", "“", "很好", "😀",
          "e\u0301", "\u200d", "\n", "liked tree house", "x" * 210)
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def expected_tokens(tokenizer, before, phrase, after, max_seq_length):
    """Word for word: [CLS] phrase [SEP] before [MASK]s after [SEP], context cut at its far ends."""
    before, phrase, after = map(tokenizer.tokenize, (before, phrase, after))
    while 3 + 2 * len(phrase) + len(before) + len(after) > max_seq_length:
        if len(before) > len(after):
            before = before[1:]
        else:
            after = after[:-1]
    slot = ["[MASK]"] * len(phrase)
    return ["[CLS]", *phrase, "[SEP]", *before, *slot, *after, "[SEP]"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
       st.lists(texts, min_size=1, max_size=4), st.integers(9, 24), st.data())
def test_the_slot_is_whole_and_in_place_after_tokenization_and_truncation(
        tiny_model, contexts, phrases, max_seq_length, drawn):
    encoding = tiny_model.encoding(max_seq_length)
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    phrases = [phrase for phrase in phrases
               if len(tokenizer.tokenize(phrase)) <= pairs.longest_phrase(max_seq_length)] or ["a"]
    indices = st.integers(0, 100)
    numbers = drawn.draw(st.lists(st.tuples(indices, indices), min_size=1, max_size=6))
    found = pairs.Pairs(
        store.Records.of_chunk(pairs.encode_contexts(*zip(*contexts), encoding)),
        store.Records.of_chunk({"ids": encoding.tokenizer.encode_batch(phrases)}),
        np.array([slot % len(contexts) for slot, _ in numbers]),
        np.array([phrase % len(phrases) for _, phrase in numbers]),
        encoding)
    longest = int(found.lengths().max())
    features = found.features(np.arange(len(found)), longest)
    for row, (slot, phrase) in enumerate(zip(found.slots, found.phrases)):
        (before, after), text = contexts[slot], phrases[phrase]
        expected = expected_tokens(tokenizer, before, text, after, max_seq_length)
        assert found.lengths()[row] == len(expected) <= max_seq_length
        padding = ["[PAD]"] * (longest - len(expected))
        assert [VOCAB[index] for index in features["input_ids"][row]] == expected + padding
        assert features["input_mask"][row].tolist() == [1] * len(expected) + [0] * len(padding)
        first = len(tokenizer.tokenize(text)) + 2
        assert features["segment_ids"][row].tolist() == (
            [0] * first + [1] * (len(expected) - first) + [0] * len(padding))


SLOTS = [SlotExample("the ", " sees .", ("cat", "dog dog", "old bird"), 1),
             SlotExample("a ", "", ("tree",), 1),
             SlotExample("", " and a cat", ("old " * 20, "house"), 1),  # too long for 24 tokens
             SlotExample("or ", " .", ("bird", "old " * 20, "small tree"), 1)]


def test_a_set_has_every_pair_once_and_says_what_is_too_long_for_the_model(
        tiny_model, tmp_path, capsys):
    path = write_slots(tmp_path / "train.jsonl", SLOTS)
    encoding = tiny_model.encoding()
    found = data.load_slots(path, encoding, str(tmp_path))
    assert ("2 phrases are left out, and with their own phrase 1 slots: they have no tokens or "
            "more than 10") in capsys.readouterr().err
    assert found.num_phrases.tolist() == [3, 1, 2] and found.num_fitting.tolist() == [1, 1, 1]
    assert found.labels.tolist() == [1, 0, 0, 1, 1, 0]
    assert found.is_ranked.tolist() == [True, False, True]
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    expected = [(SLOTS[number], phrase) for number, phrase in (
        (0, "cat"), (0, "dog dog"), (0, "old bird"), (1, "tree"), (3, "bird"), (3, "small tree"))]
    ids = found.pairs.features(np.arange(6), 24)["input_ids"]
    for row, (slot, phrase) in zip(ids, expected):
        tokens = expected_tokens(tokenizer, slot.before, phrase, slot.after, 24)
        assert [VOCAB[index] for index in row[:len(tokens)]] == tokens

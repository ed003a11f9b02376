"""The score of a line is what masking its words by hand, one after the other, gives."""

import json
import math

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import sentences
from masked_lm import OneAtATime
from pretraining import score
from pretraining_files import pretrained_fixture  # noqa: F401 (a fixture)
from tokenization import FullTokenizer


@pytest.fixture
def scored(tiny_model, pretrained, tmp_path):  # noqa: F811
    """A function that scores lines by the command."""
    def run(lines, **flags):
        (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines))
        flags = {"input_file": tmp_path / "text.txt", "output_file": tmp_path / "scores.jsonl",
                 "vocab_file": tiny_model.vocab_file, "init_checkpoint": pretrained,
                 "bert_config_file": tiny_model.bert_config_file, "max_seq_length": 40,
                 "num_cpu_replicas": 1, **flags}
        run_here(flags, score)
        return [json.loads(line) for line in open(str(tmp_path / "scores.jsonl"))]
    return run


def by_hand(tiny_model, checkpoint, line, *, whole_words):
    """(token, probability) of each token, and the perplexity, one example at a time."""
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    tokens = ["[CLS]", *tokenizer.tokenize(line), "[SEP]"]
    words = []
    for place in range(1, len(tokens) - 1):
        if whole_words and place > 1 and tokens[place].startswith("##"):
            words[-1].append(place)
        else:
            words.append([place])
    answers, losses = [], []
    with OneAtATime(tiny_model.config()) as reference:
        reference.restore(checkpoint)
        for word in words:
            ids = tokenizer.convert_tokens_to_ids([
                "[MASK]" if place in word else token for place, token in enumerate(tokens)])
            powers = [np.exp(reference.scores(ids, place)) for place in word]
            of_word = [row[tokenizer.vocab[tokens[place]]] / row.sum()
                       for place, row in zip(word, powers)]
            answers += [(tokens[place], value) for place, value in zip(word, of_word)]
            losses.append(-np.log(of_word).sum())
    return answers, math.exp(np.mean(losses))


@pytest.mark.parametrize("whole_words, num_replicas", [(True, 2), (False, 1)])
def test_probabilities_and_perplexity_are_those_of_masking_by_hand(
        scored, tiny_model, pretrained, whole_words, num_replicas):  # noqa: F811
    lines = ["the cats liked a unlike dogs", "a", "not quickly , the river sees ."]
    answers = scored(lines, do_whole_word_mask=whole_words, num_cpu_replicas=num_replicas,
                     predict_batch_size=1)
    assert "##s" in [token["token"] for token in answers[0]["tokens"]]
    for line, answer in zip(lines, answers):
        expected, perplexity = by_hand(tiny_model, pretrained, line, whole_words=whole_words)
        assert [token["token"] for token in answer["tokens"]] == [token for token, _ in expected]
        np.testing.assert_allclose([token["probability"] for token in answer["tokens"]],
                                   [value for _, value in expected], rtol=1e-4)
        assert answer["perplexity"] == pytest.approx(perplexity, rel=1e-4)
        assert len(repr(answer["perplexity"]).replace(".", "")) <= 6, "six digits are enough"


def test_blank_lines_keep_their_place_and_chunks_do_not_matter(scored, monkeypatch):
    lines = ["", "the cat sees", "  ", *sentences(20, seed=9), ""]
    whole = scored(lines)
    assert len(whole) == len(lines)
    assert [number for number, answer in enumerate(whole) if answer["perplexity"] is None] == [
        0, 2, len(lines) - 1]
    monkeypatch.setattr(score.Scores, "chunk_size", 50)
    for expected, actual in zip(whole, scored(lines)):
        assert [token["token"] for token in actual["tokens"]] == [
            token["token"] for token in expected["tokens"]]
        if expected["tokens"]:
            assert actual["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-4)


def test_a_line_longer_than_the_model_is_scored_in_parts(scored):
    words = "the cat sees a dog and a bird".split()
    whole, = scored([" ".join(words)], max_seq_length=6)
    first, second = scored([" ".join(words[:4]), " ".join(words[4:])], max_seq_length=6)
    assert [token["token"] for token in whole["tokens"]] == words
    parts = first["tokens"] + second["tokens"]
    np.testing.assert_allclose([token["probability"] for token in whole["tokens"]],
                               [token["probability"] for token in parts], rtol=1e-4)


def test_an_empty_text_and_bad_input(scored, tiny_model, capsys):
    assert scored([]) == []
    for flags, mention in ((dict(init_checkpoint=tiny_model.init_checkpoint), "masked-LM head"),
                           (dict(input_file="/nowhere.txt"), "/nowhere.txt"),
                           (dict(input_file="texts.csv"), "each line is read as a text"),
                           (dict(max_seq_length=41), "40 positions")):
        with ends_with_error(capsys, mention):
            scored(["a"], **flags)

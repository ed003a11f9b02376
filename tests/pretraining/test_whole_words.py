"""Whole words of Chinese text: those that a segmenter finds are masked as a whole, or the flag is refused."""

import json

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import VOCAB
from pretraining import score, words
from pretraining_files import create_data_here
from pretraining_files import pretrained_fixture  # noqa: F401 (a fixture)
from test_create_data import read, restored
from tokenization import BatchTokenizer

SENTENCES = ["研究 生命 的 起源", "北京 大学 的 学生", "我们 喜欢 这 本 书", "他们 the cats 昨天 见面"]
CHARACTERS = sorted({char for text in SENTENCES for char in text if char > "一"})


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("chinese") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in VOCAB + CHARACTERS), encoding="utf-8")
    return str(path)


def masked_places(folder, vocab_file, sentences, **flags):
    """Of each example, the text with its masked characters as underscores; without spaces."""
    path = create_data_here(folder, vocab_file, "\n".join(sentences), objective="mlm", max_seq_length=24,
                            one_sentence_per_example=True, do_whole_word_mask=True, dupe_factor=20,
                            masked_lm_prob=0.3, **flags)
    tokens = VOCAB + CHARACTERS
    for example in read(path):
        ids, is_masked = restored(example)
        length = int(example["input_mask"].sum())
        yield ["_" if masked else tokens[index] for index, masked in zip(ids[1:length - 1], is_masked[1:])], [
            tokens[index] for index in ids[1:length - 1]]


def test_words_between_spaces_are_masked_as_a_whole(vocab_file, tmp_path, capsys):
    pieces = {text.replace("cats", "cat ##s").replace(" ", ""): [
        word.replace("cats", "cat ##s") for word in text.split()] for text in SENTENCES}
    seen = set()
    for shown, tokens in masked_places(tmp_path, vocab_file, SENTENCES, word_segmenter="spaces"):
        place = 0
        for word in pieces["".join(tokens)]:
            size = len(word.split()) if word[0] < "一" else len(word)
            of_word = shown[place:place + size]
            assert of_word.count("_") in (0, size), (shown, word)
            seen.add((word, of_word.count("_") > 0))
            place += size
    assert ("研究", True) in seen and ("研究", False) in seen and ("cat ##s", True) in seen
    # 11 words of two characters, and "cats".
    assert "whole words: 12 of 18 words have several tokens (66.7%)" in capsys.readouterr().err


def test_jieba_finds_words_in_plain_text(vocab_file, tmp_path, capsys):
    jieba = pytest.importorskip("jieba", reason="pretraining/requirements.txt names it")
    plain = [text.replace(" ", "") for text in SENTENCES[:3]]
    words_of = {text: list(jieba.cut(text)) for text in plain}
    assert ["研究", "生命", "的", "起源"] in words_of.values()
    for shown, tokens in masked_places(tmp_path, vocab_file, plain, word_segmenter="jieba", num_processes=2):
        place = 0
        for word in words_of["".join(tokens)]:
            assert shown[place:place + len(word)].count("_") in (0, len(word)), (shown, word)
            place += len(word)
    assert "words have several tokens" in capsys.readouterr().err


@pytest.mark.parametrize("sentences, flags, parts", [
    (SENTENCES, {}, ("--do_whole_word_mask: 9", "--word_segmenter=jieba", "--word_segmenter=spaces")),
    (["研究生命的起源", "北京大学的学生"], dict(word_segmenter="spaces"), (
        "7.0 Chinese characters on average", "--word_segmenter=jieba")),
    (SENTENCES, dict(word_segmenter="spaces", do_whole_word_mask=False), ("needs --do_whole_word_mask",))])
def test_a_flag_that_would_change_nothing_is_refused(vocab_file, tmp_path, capsys, sentences, flags, parts):
    with ends_with_error(capsys, *parts):
        create_data_here(tmp_path, vocab_file, "\n\n".join(sentences), **{"do_whole_word_mask": True, **flags})
    assert not (tmp_path / "out.tfrecord").exists()


def test_some_characters_without_a_segmenter_are_a_warning(vocab_file, tmp_path, capsys):
    create_data_here(tmp_path, vocab_file, "the cats\n\nthe dog sees 研究", do_whole_word_mask=True)
    assert "WARNING: --do_whole_word_mask: 25% of the tokens are Chinese characters" in capsys.readouterr().err


def test_the_tokens_of_mixed_texts_keep_their_places(vocab_file):
    """Characters that the vocabulary does not know, that are cleaned away, and letters beside ideographs."""
    tokenizer = BatchTokenizer(vocab_file, True)
    texts = ["", "研究X生命", "\u200b鿟研 究", "cats研究ed", "的\u0301起源"]
    ids, _ = tokenizer.encode_batch(texts)
    whole, counts = words.find_starts(texts, tokenizer, lambda text: [text])
    assert whole.astype(int).tolist() == [1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0]
    assert len(ids) == len(whole) and counts == {"words": 10, "several": 6, "ideographs": 12, "joined": 5}
    characters, _ = words.find_starts(texts, tokenizer, iter)
    assert np.flatnonzero(~characters).tolist() == [9]  # ##s


def test_a_score_masks_the_words_of_a_segmenter(vocab_file, pretrained, tiny_model, tmp_path, capsys):  # noqa: F811
    """The toy model knows none of the characters: what is masked together shows in the count of words."""
    (tmp_path / "lines.txt").write_text("研究 生命\n", encoding="utf-8")
    perplexities = {}
    for name in (None, "spaces"):
        run_here(dict(tiny_model._asdict(), init_checkpoint=pretrained, input_file=tmp_path / "lines.txt",
                      max_seq_length=16, word_segmenter=name, output_file=tmp_path / f"{name}.jsonl"), score)
        perplexities[name] = json.loads((tmp_path / f"{name}.jsonl").read_text())
    tokens = {name: [entry["probability"] for entry in scored["tokens"]] for name, scored in perplexities.items()}
    assert len(tokens["spaces"]) == len(tokens[None]) == 4
    for name, num_words in ((None, 4), ("spaces", 2)):
        assert perplexities[name]["perplexity"] == pytest.approx(
            np.exp(-np.log(tokens[name]).sum() / num_words), rel=1e-4)

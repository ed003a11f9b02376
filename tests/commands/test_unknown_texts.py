"""Texts of another language than the vocabulary: every command that tokenizes a set says so."""

import html
import os
import shutil

import pytest

import extract_features
import toy_runs
from commands import run_here
from conftest import WORDS
from encoder.encoding import encode_texts_and_pairs
from pretraining import create_data
from runs import predict
from similarity import search
from similarity_files import write_model

UNKNOWN = "of the tokens are [UNK]"
STRANGE = "of the texts have no word that the vocabulary knows"
MERGED = "of the texts have the tokens of one with other words"
ONE_SEGMENT = "type_vocab_size is 1"
EMOJI = ["😀 😀", "😡", "😱", " 😡 "] * 10
RUNS = ["run_classifier", "run_squad"]


@pytest.fixture
def foreign(tiny_model, tmp_path):
    """A model that knows other words than those of the texts, but punctuation marks."""
    folder = tmp_path / "foreign"
    shutil.copytree(os.path.dirname(tiny_model.vocab_file), str(folder))
    words = [f"ж{number}" if word.strip("#").isalpha() else word
             for number, word in enumerate(WORDS)]
    text = (folder / "vocab.txt").read_text().split("\n")[:5] + words
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in text))
    return tiny_model._replace(vocab_file=str(folder / "vocab.txt"),
                               init_checkpoint=str(folder / "bert_model.ckpt"))


def warnings_in(capsys, *parts):
    return [line for line in capsys.readouterr().err.splitlines()
            if line.startswith("WARNING") and any(part in line for part in parts)]


@pytest.mark.parametrize("run", RUNS)
def test_a_training_says_so_each_time_and_its_report_does(run, foreign, tmp_path, capsys):
    for _ in range(1 + (run == "run_classifier")):  # whose second command finds the tokens in the store
        toy_runs.train(run, tmp_path, foreign, train_batch_size=40, num_train_epochs=1,
                       num_cpu_replicas=1)
        warning, *_ = warnings_in(capsys, UNKNOWN)
        assert f"{tmp_path}" in warning or warning.startswith("WARNING: train.tsv: ")
        assert STRANGE in warning or run == "run_squad"  # where some words are known
        page = html.unescape((tmp_path / run / "report.html").read_text())
        assert warning.split(": ", 1)[1] in page


def test_a_separator_within_a_text_is_named(tiny_model, capsys):
    encoding = tiny_model.encoding()
    for texts, lines in ((["the cat", "a dog"], 0), (["the cat [SEP] a dog", "a dog"], 1)):
        encode_texts_and_pairs(texts, ["", ""], encoding)
        encoding.report("train.tsv")
        assert len(warnings_in(capsys, "train.tsv: 1 text with [SEP]")) == lines


@pytest.mark.parametrize("name", ["predict", "features", "search", "create_data"])
def test_a_command_that_reads_texts_says_so(name, tiny_classifier, tiny_model, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in EMOJI + ["the cat"] * 10))
    given = dict(input_file=tmp_path / "texts.txt", num_cpu_replicas=1)
    if name == "predict":
        run_here(dict(given, output_dir=tiny_classifier, output_file=tmp_path / "out.tsv"), predict)
    elif name == "features":
        run_here(dict(given, **tiny_model._asdict(), max_seq_length=16, layers="-1",
                      output_file=tmp_path / "out.jsonl"), extract_features)
    elif name == "search":
        write_model(tmp_path / "model", tiny_model)
        run_here(dict(model_dir=tmp_path / "model", documents=tmp_path / "texts.txt", num_cpu_replicas=1,
                      output_dir=tmp_path / "index"), search)
    else:
        (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in (
            EMOJI + ["the cat and the dog"] * 20)))
        run_here(dict(input_file=tmp_path / "texts.txt", vocab_file=tiny_model.vocab_file,
                      output_file=tmp_path / "out.tfrecord", max_seq_length=16, objective="mlm"),
                 create_data)
    warning, = warnings_in(capsys, UNKNOWN)
    assert STRANGE in warning and MERGED in warning


@pytest.mark.parametrize("texts, said", [
    (EMOJI, [UNKNOWN, STRANGE, MERGED]),
    (["the cat"] * 39 + ["😀"], []),
    (["the cat and a dog"] * 12 + ["the cat 😀 and a dog", "the cat 😡 and a dog"] * 2, [MERGED]),
    (["the cát", "The  cat", "the dog"], []),
    (["the cat", "THE CAT ", "The\tcat", "", "  "], []),
    (["", "the cat", "\ue000\ue001"], [STRANGE]),
    (["the cat 😀"], []), (["the cat 😀"] * 20, [UNKNOWN])])
def test_the_shares_are_those_of_texts_as_written(texts, said, tiny_model, capsys):
    """Case, accents and spaces make no other words; blank texts do not count."""
    encoding = tiny_model.encoding()
    encode_texts_and_pairs(texts, [""] * len(texts), encoding)
    encoding.report("the texts")
    warning = "".join(warnings_in(capsys, ""))
    assert [part for part in (UNKNOWN, STRANGE, MERGED) if part in warning] == said
    assert len(encoding.counts.warnings) == bool(said)


@pytest.mark.parametrize("run, is_said", [
    ("run_squad", True), ("pretraining.run", True), ("run_classifier", False)])
def test_a_model_of_one_segment_is_told_of_pairs_once(
        run, is_said, tiny_model, tmp_path, capsys):
    model = tiny_model.with_config(tmp_path / "config.json", type_vocab_size=1)
    toy_runs.train(run, tmp_path, model._replace(init_checkpoint=None), train_batch_size=40,
                   **({} if "pretraining" in run else {"num_train_epochs": 1}))
    assert len(warnings_in(capsys, ONE_SEGMENT)) == is_said

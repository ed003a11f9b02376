"""Vocabularies: trained in BERT's layout, or extended with rows that are the mean of the pieces."""

import sys

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import checkpoint_values
from pretraining import create_vocab
from tokenization import BatchTokenizer, FullTokenizer

import tensorflow.compat.v1 as tf

TEXT = "Déjà vu: the Cat sat on the mat, the cats sat.\n我来到北京，我在北京。\n" * 20
TABLE = "bert/embeddings/word_embeddings"


def run(folder, **flags):
    run_here({"output_dir": folder / "out", **flags}, create_vocab)
    return (folder / "out" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture
def text_file(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "text.txt"


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_a_trained_vocabulary_has_berts_layout_and_knows_its_text(tmp_path, text_file,
                                                                  do_lower_case):
    pytest.importorskip("tokenizers")
    tokens = run(tmp_path, input_file=text_file, vocab_size=170, do_lower_case=do_lower_case)
    assert tokens[:3] == ["[PAD]", "[unused0]", "[unused1]"] and tokens[99] == "[unused98]"
    assert tokens[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(tokens) == len(set(tokens)) <= 170
    assert ("the" in tokens) and ("北" in tokens) and not [t for t in tokens if "北京" in t]
    assert any(t != t.lower() for t in tokens[104:]) == (not do_lower_case)
    assert any("é" in t for t in tokens) == (not do_lower_case)
    ids, lengths = BatchTokenizer(str(tmp_path / "out" / "vocab.txt"), do_lower_case).encode_batch(
        TEXT.splitlines()[:2])
    assert lengths.all() and not (ids == 100).any()  # no [UNK]


def test_without_the_package_one_line_says_how_to_install_it(
        tmp_path, text_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    with ends_with_error(capsys, "tokenizers", "pip install -r pretraining/requirements.txt"):
        run(tmp_path, input_file=text_file)


@pytest.fixture
def model(tmp_path):
    """A vocabulary with three unused rows, and a checkpoint with the slots of a training."""
    tokens = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cardio",
              "##logy", "##graph", "the", "[unused2]"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (tmp_path / "bert_config.json").write_text("{}")
    generator = np.random.RandomState(0)
    with tf.Session() as session:
        for name in (TABLE, f"{TABLE}/adam_m", "cls/predictions/output_bias"):
            shape = [12] if "bias" in name else [12, 4]
            tf.get_variable(name, initializer=generator.rand(*shape).astype(np.float32))
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "bert_model.ckpt"), write_meta_graph=False,
                              write_state=False)
    return dict(extend_vocab=True, vocab_file=tmp_path / "vocab.txt",
                init_checkpoint=tmp_path / "bert_model.ckpt")


def test_words_get_unused_rows_that_are_the_mean_of_their_pieces(tmp_path, model):
    (tmp_path / "words.txt").write_text("Cardiology\nthe\nxyz\n\ncardiology\n")
    tokens = run(tmp_path, words_file=tmp_path / "words.txt", **model)
    assert tokens[1:3] == ["cardiology", "xyz"] and tokens[11] == "[unused2]"
    before = checkpoint_values(str(model["init_checkpoint"]))
    after = checkpoint_values(str(tmp_path / "out" / "bert_model.ckpt"))
    assert sorted(before) == sorted(after)
    expected = before[TABLE].copy()
    expected[1] = (before[TABLE][7] + before[TABLE][8]) / 2  # cardio ##logy
    expected[2] = before[TABLE][3]  # [UNK]
    assert np.allclose(after[TABLE], expected, atol=1e-7)
    untouched = np.delete(np.arange(12), [1, 2])
    assert after[TABLE][untouched].tobytes() == before[TABLE][untouched].tobytes()
    for name in set(before) - {TABLE}:
        assert before[name].tobytes() == after[name].tobytes()
        assert before[name].dtype == after[name].dtype
    assert (tmp_path / "out" / "bert_config.json").exists()
    tokenizer = FullTokenizer(str(tmp_path / "out" / "vocab.txt"))
    assert tokenizer.tokenize("the cardiology") == ["the", "cardiology"]


@pytest.mark.parametrize("flags, mentions", [
    (dict(input_file="/no/such"), ["--input_file", "/no/such"]),
    (dict(), ["--input_file"]),
    (dict(input_file="text.txt", words_file="w"), ["--words_file is for --extend_vocab"]),
    (dict(input_file="text.txt", vocab_size=50), ["--vocab_size=50", "104"]),
    (dict(extend_vocab=True), ["--vocab_file is required"])])
def test_flags_that_do_not_go_together_are_refused(tmp_path, text_file, capsys, flags, mentions):
    if flags.get("input_file") == "text.txt":
        flags = {**flags, "input_file": text_file}
    with ends_with_error(capsys, *mentions):
        run(tmp_path, **flags)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_empty_is_refused_before_the_text_is_read(
        tmp_path, text_file, capsys, monkeypatch):
    monkeypatch.setattr(create_vocab, "_lines", lambda path: pytest.fail("the text was read"))
    with ends_with_error(capsys, "is not empty"):
        run(tmp_path, input_file=text_file, output_dir=tmp_path)


@pytest.mark.parametrize("words, tokens, mentions", [
    ("the\ntwo words\n", None, ["words.txt, line 2", "two words"]),
    ("a\nb\nc\nd\n", None, ["4 new words", "3 unused rows"]),
    ("the\n", None, ["0 new words", "at least one word"]),
    ("x\n", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(16))], ["20 entries", "vocab_size 12"]),
    ("x\n", [f"word{row}" for row in range(12)], ["--vocab_file", "[UNK]"])])
def test_words_that_cannot_have_rows_are_refused(
        tmp_path, model, capsys, words, tokens, mentions):
    (tmp_path / "words.txt").write_text(words)
    if tokens:
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    with ends_with_error(capsys, *mentions):
        run(tmp_path, words_file=tmp_path / "words.txt", **model)
    assert not (tmp_path / "out").exists()

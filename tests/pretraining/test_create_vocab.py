"""Vocabularies that are trained have BERT's layout."""

import errno
import sys

import pytest

from commands import ends_with_error, run_here
from engine.disk import files
from pretraining import create_vocab
from tokenization import BatchTokenizer

TEXT = "Déjà vu: the Cat sat on the mat, the cats sat.\n我来到北京，我在北京。\n" * 20


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


def test_the_same_command_again_leaves_a_whole_vocabulary_as_it_is(tmp_path, text_file, capsys, monkeypatch):
    pytest.importorskip("tokenizers")
    flags = dict(input_file=text_file, vocab_size=170)
    sync = files.sync

    def fail(path):
        if path == str(tmp_path):  # the last operation: the folder has its name
            raise OSError(errno.EIO, "Input/output error")
        sync(path)
    with monkeypatch.context() as patch, ends_with_error(capsys, "run the same command again"):
        patch.setattr(files, "sync", fail)
        run(tmp_path, **flags)
    tokens = (tmp_path / "out" / "vocab.txt").read_text()
    assert "\n".join(run(tmp_path, **flags)) + "\n" == tokens
    assert "vocab.txt is whole: nothing is left to do" in capsys.readouterr().err
    with ends_with_error(capsys, "not empty; name a new folder"):
        run(tmp_path, **{**flags, "vocab_size": 160})
    assert (tmp_path / "out" / "vocab.txt").read_text() == tokens


def test_without_the_package_one_line_says_how_to_install_it(
        tmp_path, text_file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    with ends_with_error(capsys, "tokenizers", "pip install -r pretraining/requirements.txt"):
        run(tmp_path, input_file=text_file)


@pytest.mark.parametrize("flags, mentions", [
    (dict(input_file="/no/such"), ["--input_file", "/no/such"]),
    (dict(input_file="{}/texts.jsonl"), ["texts.jsonl", "each line is read as a text"]),
    (dict(input_file="{}/text.txt", vocab_size=50), ["--vocab_size=50", "104"]),
    (dict(input_file="/no/such", output_dir="{}"), ["not empty; name a new folder"])])
def test_flags_that_do_not_go_together_are_refused(tmp_path, text_file, capsys, flags, mentions):
    (tmp_path / "texts.jsonl").write_text('{"text": "the cat"}\n')
    with ends_with_error(capsys, *mentions):
        run(tmp_path, **{name: value.format(tmp_path) if isinstance(value, str) else value
                         for name, value in flags.items()})
    assert not (tmp_path / "out").exists()

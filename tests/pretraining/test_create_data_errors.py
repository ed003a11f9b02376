"""Text that makes no pretraining data: one clear line, exit status 2, and nothing half-written."""

import functools
import gzip
import os

import pytest

from commands import ends_with_error
from pretraining_files import create_data_here

TEXT = b"the cat sees a dog .\na bird likes the tree !\n\nthe old river\nthe small house\n"
create = functools.partial(create_data_here, max_seq_length=16)


@pytest.mark.parametrize("text, flags, mentions", [
    (b"", {}, ["--input_file", "no text"]),
    (b"the old river\na small house\n", {}, ["one document", "--objective=mlm"]),
    (b"the cat\n\na d\xffog\n", {}, ["text.txt, line 3", "UTF-8"]),
    ("мышь и дом\n\nещё один текст\n".encode("utf-8"), {}, ["--vocab_file", "100%", "[UNK]"]),
    (b"1\tthe cat\n", dict(input_format="pairs", objective="span"), ["line 1", "tabs"]),
    (b"1\tx\tthe\ta dog\n", dict(input_format="pairs", objective="span"), ["no pair"]),
    (TEXT, dict(input_format="pairs"), ["--input_format=pairs", "--objective=span"]),
    (TEXT, dict(one_sentence_per_example=True), ["--one_sentence_per_example"]),
    (TEXT, dict(masked_lm_prob=1.5), ["masked_lm_prob"]),
    (TEXT, dict(output_file=""), ["--output_file"]),
    (TEXT, dict(input_file="{}/cut.txt.gz"), ["cut.txt.gz"]),
    (TEXT, dict(vocab_file="{}/unmasked.txt"), ["unmasked.txt", "[MASK]"]),
])
def test_one_line_says_what_is_wrong(tiny_model, tmp_path, capsys, text, flags, mentions):
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(TEXT * 100)[:100])
    (tmp_path / "unmasked.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    flags = {name: value.format(tmp_path) if isinstance(value, str) else value
             for name, value in flags.items()}
    before = set(os.listdir(str(tmp_path))) | {"text.txt"}
    with ends_with_error(capsys, *mentions):
        create(tmp_path, text=text, **{"vocab_file": tiny_model.vocab_file, **flags})
    assert set(os.listdir(str(tmp_path))) <= before, "something is half-written"


def test_output_of_other_settings_is_not_overwritten(tiny_model, tmp_path, capsys):
    create(tmp_path, tiny_model.vocab_file, TEXT)
    content = (tmp_path / "out.tfrecord").read_bytes()
    with ends_with_error(capsys, "made with another masked_lm_prob: was 0.15, now 0.2"):
        create(tmp_path, tiny_model.vocab_file, masked_lm_prob=0.2)
    with ends_with_error(capsys, "made with another inputs: ", "text.txt has another content"):
        create(tmp_path, tiny_model.vocab_file, TEXT + b"more\n")
    os.remove(str(tmp_path / "out.tfrecord.json"))
    with ends_with_error(capsys, "out.tfrecord"):
        create(tmp_path, tiny_model.vocab_file)
    assert (tmp_path / "out.tfrecord").read_bytes() == content


def test_output_that_is_there_already_is_not_made_again(tiny_model, tmp_path, capsys):
    create(tmp_path, tiny_model.vocab_file, TEXT)
    made = os.stat(str(tmp_path / "out.tfrecord")).st_mtime_ns
    os.utime(str(tmp_path / "text.txt"), (1, 1))  # the same content
    create(tmp_path, tiny_model.vocab_file)
    assert os.stat(str(tmp_path / "out.tfrecord")).st_mtime_ns == made
    assert "same settings" in capsys.readouterr().err


def test_output_that_has_changed_since_it_was_written_is_made_again(tiny_model, tmp_path, capsys):
    create(tmp_path, tiny_model.vocab_file, TEXT)
    path = tmp_path / "out.tfrecord"
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes(100))
    create(tmp_path, tiny_model.vocab_file)
    assert path.read_bytes() == content
    assert "out.tfrecord is not as it was written: it is made again" in capsys.readouterr().err

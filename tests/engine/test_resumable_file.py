"""A file written over several runs is there only when it is whole, and is never mixed up."""

import os

import pytest

from engine.disk.resumable_file import ResumableFile
from engine.errors import UserError

FACTS = {"seed": 42, "columns": (0, 1)}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "train.tsv")


def content(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(path, chunks, facts=FACTS, header=""):
    file = ResumableFile(path, facts, header=header)
    for chunk in chunks:
        file.append(chunk, len(chunk.splitlines()))
    return file


def test_it_begins_anew_where_its_beginning_is_gone(path):
    write(path, ["a\n", "b\n"])
    os.remove(f"{path}.part")
    file = ResumableFile(path, FACTS)
    assert file.num_rows == 0 and not file.is_whole
    del file  # which locks it
    write(path, ["A\n"]).finish()
    assert content(path) == "A\n"


def test_a_partial_file_with_other_facts_is_written_anew_and_a_complete_one_is_refused(path, capsys):
    write(path, ["x\n"], facts={**FACTS, "seed": 43})
    file = write(path, ["a\n"])
    assert "another seed: was 43, now 42: it is written anew" in capsys.readouterr().err
    file.finish()
    with pytest.raises(UserError, match="made with another seed: was 42, now 43; name another output"):
        ResumableFile(path, {**FACTS, "seed": 43})
    assert content(path) == "a\n"


def test_what_is_no_regular_file_cannot_be_resumed(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(UserError, match=f"{path} is no regular file.*: name another file"):
            ResumableFile(path, FACTS)
    assert os.listdir(str(tmp_path)) == ["pipe"]


def test_a_link_stays_one(tmp_path, path):
    os.symlink(path, str(tmp_path / "link"))
    write(str(tmp_path / "link"), ["a\n"]).finish()
    assert os.path.islink(str(tmp_path / "link")) and content(path) == "a\n"


def test_the_header_is_written_once_and_to_an_empty_file_too(path):
    write(path, ["a\n"], header="name\n")
    write(path, ["b\n"], header="name\n").finish()
    assert content(path) == "name\na\nb\n"
    write(f"{path}.2", [], header="name\n").finish()
    assert content(f"{path}.2") == "name\n"

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


def open_file(path, facts=FACTS, **options):
    return ResumableFile(path, facts, **{"keep_record": True, **options})


def write(path, chunks, **options):
    file = open_file(path, **options)
    for chunk in chunks:
        file.append(chunk, len(chunk.splitlines()))
    return file


def test_it_has_its_name_only_when_it_is_whole(path):
    file = write(path, ["a\nб\n", "c\n"])
    assert not os.path.exists(path) and not file.is_whole
    file.finish()
    assert content(path) == "a\nб\nc\n" and file.is_whole
    assert open_file(path).is_whole
    assert sorted(os.listdir(os.path.dirname(path))) == ["train.tsv", "train.tsv.json"]


def test_another_run_goes_on_after_the_last_chunk_that_was_recorded(path):
    write(path, ["a\nб\n"])
    with open(f"{path}.part", "a") as file:
        file.write("half a li")  # a process was killed here
    file = open_file(path)
    assert file.num_rows == 2
    file.append("c\n", 1)
    file.finish()
    assert content(path) == "a\nб\nc\n"
    assert sorted(os.listdir(os.path.dirname(path))) == ["train.tsv", "train.tsv.json"]


def test_it_begins_anew_where_its_beginning_is_gone(path):
    write(path, ["a\n", "b\n"])
    os.remove(f"{path}.part")
    file = open_file(path)
    assert file.num_rows == 0 and not file.is_whole
    file.append("A\n", 1)
    file.finish()
    assert content(path) == "A\n"


@pytest.mark.parametrize("is_whole", [False, True])
def test_another_file_of_the_name_is_refused(is_whole, path):
    file = write(path, ["a\n"])
    if is_whole:
        file.finish()
    with pytest.raises(UserError, match="another seed: was 42, now 43"):
        open_file(path, {**FACTS, "seed": 43})


def test_a_file_that_it_did_not_write_is_left_alone(path):
    with open(path, "w") as file:
        file.write("mine")
    with pytest.raises(UserError, match="not written by this command"):
        open_file(path)
    assert content(path) == "mine"


def test_what_is_no_regular_file_cannot_be_resumed(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(UserError, match=f"{path} is no regular file.*: name another file"):
            open_file(path)
    assert os.listdir(str(tmp_path)) == ["pipe"]


def test_a_link_stays_one(tmp_path, path):
    os.symlink(path, str(tmp_path / "link"))
    write(str(tmp_path / "link"), ["a\n"]).finish()
    assert os.path.islink(str(tmp_path / "link")) and content(path) == "a\n"


def test_the_header_is_written_once_and_to_an_empty_file_too(path):
    write(path, ["a\n"], header="name\n")
    file = write(path, ["b\n"], header="name\n")
    file.finish()
    assert content(path) == "name\na\nb\n"
    open_file(f"{path}.2", header="name\n").finish()
    assert content(f"{path}.2") == "name\n"


def test_a_record_that_is_not_kept_goes_when_the_file_is_whole(path):
    write(path, ["a\n"], keep_record=False)
    file = open_file(path, keep_record=False)
    assert file.num_rows == 1
    file.append("b\n", 1)
    file.finish()
    assert content(path) == "a\nb\n"
    assert os.listdir(os.path.dirname(path)) == ["train.tsv"]
    assert open_file(path, keep_record=False).num_rows == 0, "it is written again"


def test_an_interrupted_run_with_other_facts_is_written_anew_if_the_record_is_not_kept(
        path, capsys):
    write(path, ["x\n"], facts={**FACTS, "seed": 43}, keep_record=False)
    file = write(path, ["a\n"], keep_record=False)
    assert "another seed: was 43, now 42" in capsys.readouterr().err
    file.finish()
    assert content(path) == "a\n"


def test_a_file_may_hold_bytes(path):
    file = open_file(path, keep_record=False, header=b"\x93N")
    file.append(b"\xff\x00", 1)
    file = open_file(path, keep_record=False, header=b"\x93N")
    file.append(b"\xfe", 1)
    file.finish()
    with open(path, "rb") as written:
        assert written.read() == b"\x93N\xff\x00\xfe"

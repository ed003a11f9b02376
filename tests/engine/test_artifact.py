"""An output is known to be whole, or says why not; a file that grows is never mixed up."""

import contextlib
import errno
import json
import os
import shutil

import numpy as np
import pytest

from engine.data.store import Column, open_or_build
from engine.disk import artifact, scratch
from engine.disk.artifact import Artifact, GrowingFile
from engine.errors import UserError

FACTS = {"seed": 42, "columns": (0, 1)}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "train.tsv")


def content(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


class Killed(Exception):
    """Ends a run in the middle of a file."""


def opened(path, facts=FACTS):
    """A run that ends without a word."""
    return write(path, [], facts, ends=False)


def write(path, chunks, facts=FACTS, header="", ends=True):
    with contextlib.suppress(Killed), GrowingFile(path, facts, header).growing("rows") as file:
        for chunk in chunks:
            file.append(chunk, len(chunk.splitlines()))
        if not ends:
            raise Killed
    return file


def test_an_output_says_how_it_stands(path):
    output = Artifact(path, FACTS)
    assert str(output.state()) == "missing"
    with open(f"{path}.part", "w"):
        assert str(output.state()) == "begun"
    with open(path, "w"):
        assert str(output.state()) == f"{path} has no record of what it was made from"
    with artifact.making(output, replaces=artifact.ODD) as is_needed, output.written() as draft:
        assert is_needed
        with open(draft, "w") as file:
            file.write("now")
    assert output.state().name == "whole" and content(path) == "now"
    other = Artifact(path, {**FACTS, "seed": 43})
    assert str(other.state()) == f"{path} was made with another seed: was 42, now 43"
    with pytest.raises(UserError, match=f"now 43; name another output, or remove {path} and {path}.json"):
        artifact.is_needed(output, other)
    with open(path, "r+") as file:
        file.write("N")
    assert str(output.state()) == f"{path} is not as it was written" and artifact.is_needed(output)
    os.truncate(f"{path}.json", 20)
    assert output.state().name == "other" and ".json is not valid JSON" in str(output.state())


def test_a_file_with_other_facts_is_refused_partial_or_complete(path):
    write(path, ["x\n"], {**FACTS, "seed": 43}, ends=False)
    with pytest.raises(UserError, match=f"{path}.part is from an interrupted run with another seed: was 43, now 42; go on"):
        opened(path)
    os.remove(f"{path}.part")
    write(path, ["a\n"])
    with pytest.raises(UserError, match="made with another seed: was 42, now 43; name another output"):
        opened(path, {**FACTS, "seed": 43})
    assert content(path) == "a\n"


def test_what_is_no_regular_file_cannot_be_resumed(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(UserError, match=f"{path} is no regular file.*: name another file"):
            opened(path)
    assert os.listdir(str(tmp_path)) == ["pipe"]


def test_the_header_is_written_once_and_to_an_empty_file_too(path):
    write(path, ["a\n"], header="name\n", ends=False)
    write(path, ["b\n"], header="name\n")
    assert content(path) == "name\na\nb\n"
    write(f"{path}.2", [], header="name\n")
    assert content(f"{path}.2") == "name\n" and opened(f"{path}.2").is_whole


def test_on_a_disk_that_takes_no_file_what_is_whole_is_whole_and_the_rest_is_refused(path, monkeypatch, capsys):
    write(path, ["a\n"])
    whole, missing = opened(path), opened(f"{path}.2")

    def refused(path, output):  # tests may run as root, whom the mode of a folder does not stop
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(scratch, "exclusive", refused)
    with artifact.making(whole) as must_make:
        assert not must_make
    assert f"{path} is whole: nothing is left to do" in capsys.readouterr().err
    with pytest.raises(OSError, match="Read-only"), artifact.making(missing):
        pass


def as_1_0_0_left_it(path):
    """The record without what later versions have added."""
    with open(f"{path}.json", encoding="utf-8") as file:
        record = json.load(file)
    del record["content"]
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(record, file)


def test_it_is_whole_with_the_recorded_content_whatever_its_time(path, capsys):
    write(path, ["a\n", "b\n"])
    os.utime(path, (1, 1))
    for _ in range(2):  # read, and remembered
        file = opened(path)
        assert file.is_whole and file.num_rows == 2
    with open(path, "r+") as file:
        file.write("A")
    assert not opened(path).is_whole
    assert f"{path} is not as it was written: it is made again" in capsys.readouterr().err
    write(path, ["a\n", "b\n"])
    assert opened(path).is_whole and content(path) == "a\nb\n"


@pytest.mark.parametrize("left", ["a\n", "A\nb\n", "", None])
def test_an_unfinished_file_that_is_not_as_recorded_is_written_anew_and_never_extended(
        path, left, capsys):
    write(path, ["a\n", "b\n"], ends=False)
    os.remove(f"{path}.part")
    if left is not None:
        with open(f"{path}.part", "w") as file:
            file.write(left)
    file = write(path, ["c\n"])
    assert file.num_rows == 1 and not file.is_whole
    assert left is None or "train.tsv.part is not as it was recorded" in capsys.readouterr().err
    assert content(path) == "c\n"


def test_what_another_process_has_changed_meanwhile_is_not_extended(path):
    """Where the disk has no locks."""
    for change in (lambda: os.truncate(f"{path}.part", 1), lambda: os.remove(f"{path}.part")):
        with pytest.raises(UserError, match="part was changed by another process"):
            with GrowingFile(path, FACTS).growing("rows") as file:
                file.append("a\n", 1)
                change()
                file.append("b\n", 1)


def test_the_files_of_another_store_are_seen_though_its_record_came_with_them(tmp_path, capsys):
    def opened_store(*ids):
        return open_or_build(str(tmp_path), "s", {"k": len(ids)}, {"ids": Column("uint16", ragged=True)},
                             lambda: [{"ids": (np.array(ids), np.ones(len(ids), int))}])

    one, other = opened_store(1), opened_store(2, 3)
    shutil.rmtree(one.directory)
    shutil.copytree(other.directory, one.directory)
    assert opened_store(1).flat("ids").tolist() == [1]
    assert f"{one.directory} is not as it was written: it is made again" in capsys.readouterr().err


def test_records_of_1_0_0_have_the_length_alone(path):
    write(path, ["a\n", "b\n"], ends=False)
    as_1_0_0_left_it(path)
    assert write(path, ["c\n"]).num_rows == 3
    assert content(path) == "a\nb\nc\n"
    as_1_0_0_left_it(path)
    with open(path, "r+") as file:
        file.write("A")
    assert opened(path).is_whole
    os.truncate(path, 3)
    assert not opened(path).is_whole

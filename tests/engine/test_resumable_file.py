"""A file written over several runs is there only when it is whole, and is never mixed up."""

import gc
import json
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


def opened(*arguments, **options):
    gc.collect(1)  # an earlier object may be part of a cycle, and still lock the file
    return ResumableFile(*arguments, **options)


def write(path, chunks, facts=FACTS, header=""):
    file = opened(path, facts, header=header)
    for chunk in chunks:
        file.append(chunk, len(chunk.splitlines()))
    return file


def test_a_partial_file_with_other_facts_is_written_anew_and_a_complete_one_is_refused(path, capsys):
    write(path, ["x\n"], facts={**FACTS, "seed": 43})
    file = write(path, ["a\n"])
    assert "another seed: was 43, now 42: it is written anew" in capsys.readouterr().err
    file.finish()
    with pytest.raises(UserError, match="made with another seed: was 42, now 43; name another output"):
        opened(path, {**FACTS, "seed": 43})
    assert content(path) == "a\n"


def test_what_is_no_regular_file_cannot_be_resumed(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(UserError, match=f"{path} is no regular file.*: name another file"):
            opened(path, FACTS)
    assert os.listdir(str(tmp_path)) == ["pipe"]


def test_the_header_is_written_once_and_to_an_empty_file_too(path):
    write(path, ["a\n"], header="name\n")
    write(path, ["b\n"], header="name\n").finish()
    assert content(path) == "name\na\nb\n"
    write(f"{path}.2", [], header="name\n").finish()
    assert content(f"{path}.2") == "name\n" and opened(f"{path}.2", FACTS, header="name\n").is_whole


def as_1_0_0_left_it(path):
    """The record without what later versions have added."""
    with open(f"{path}.json", encoding="utf-8") as file:
        record = json.load(file)
    del record["content"]
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(record, file)


def test_it_is_whole_with_the_recorded_content_whatever_its_time(path, capsys):
    write(path, ["a\n", "b\n"]).finish()
    os.utime(path, (1, 1))
    for _ in range(2):  # read, and remembered
        file = opened(path, FACTS)
        assert file.is_whole and file.num_rows == 2
        del file
    with open(path, "r+") as file:
        file.write("A")
    assert not opened(path, FACTS).is_whole
    assert f"{path} is not as it was recorded: it is written anew" in capsys.readouterr().err
    write(path, ["a\n", "b\n"]).finish()
    assert opened(path, FACTS).is_whole and content(path) == "a\nb\n"


@pytest.mark.parametrize("left", ["a\n", "A\nb\n", "", None])
def test_an_unfinished_file_that_is_not_as_recorded_is_written_anew_and_never_extended(
        path, left, capsys):
    write(path, ["a\n", "b\n"])
    os.remove(f"{path}.part")
    if left is not None:
        with open(f"{path}.part", "w") as file:
            file.write(left)
    file = opened(path, FACTS)
    said = capsys.readouterr().err
    assert file.num_rows == 0 and not file.is_whole
    assert left is None or "train.tsv.part is not as it was recorded" in said
    file.append("c\n", 1)
    file.finish()
    assert content(path) == "c\n"


def test_what_another_process_has_changed_meanwhile_is_not_extended(path):
    """Where the disk has no locks."""
    for change in (lambda: os.truncate(f"{path}.part", 1), lambda: os.remove(f"{path}.part")):
        file = write(path, ["a\n"])
        change()
        with pytest.raises(UserError, match="part was changed by another process"):
            file.append("b\n", 1)
        del file


def test_records_of_1_0_0_have_the_length_alone(path):
    write(path, ["a\n", "b\n"])
    as_1_0_0_left_it(path)
    file = opened(path, FACTS)
    assert file.num_rows == 2
    file.append("c\n", 1)
    file.finish()
    assert content(path) == "a\nb\nc\n"
    del file
    as_1_0_0_left_it(path)
    with open(path, "r+") as file:
        file.write("A")
    assert opened(path, FACTS).is_whole
    os.truncate(path, 3)
    assert not opened(path, FACTS).is_whole


def test_a_damaged_record_says_what_to_do(path):
    write(path, ["a\n"]).finish()
    os.truncate(f"{path}.json", 20)
    with pytest.raises(UserError, match="train.tsv.json is not valid JSON: .*; remove it with .*train.tsv, "
                                        "and build them again"):
        opened(path, FACTS)

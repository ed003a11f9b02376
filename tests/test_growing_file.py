"""A file written over several runs is there only when it is whole, and is never mixed up."""

import json
import os

import pytest

from engine.errors import UserError
from engine.resumable_file import GrowingFile

FACTS = {"seed": 42, "columns": (0, 1)}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "train.tsv")


def content(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(path, pieces, facts=FACTS):
    file = GrowingFile(path, facts)
    for piece in pieces:
        file.append(piece, len(piece.splitlines()))
    return file


def test_it_has_its_name_only_when_it_is_whole(path):
    file = write(path, ["a\nб\n", "c\n"])
    assert not os.path.exists(path) and not file.is_whole
    file.finish()
    assert content(path) == "a\nб\nc\n" and file.is_whole
    assert GrowingFile(path, FACTS).is_whole
    assert sorted(os.listdir(os.path.dirname(path))) == ["train.tsv", "train.tsv.json"]


def test_another_run_goes_on_after_the_last_piece_that_was_recorded(path):
    write(path, ["a\nб\n"])
    with open(f"{path}.part", "a") as file:
        file.write("half a li")  # a process was killed here
    with open(f"{path}.json.tmp-4194305", "w") as file:  # or here
        file.write("{")
    file = GrowingFile(path, FACTS)
    assert file.num_rows == 2
    file.append("c\n", 1)
    file.finish()
    assert content(path) == "a\nб\nc\n"
    assert sorted(os.listdir(os.path.dirname(path))) == ["train.tsv", "train.tsv.json"]


def test_what_was_not_recorded_is_cut_off_where_nothing_is_left_to_write(path):
    write(path, ["a\n"])
    with open(f"{path}.part", "a") as file:
        file.write("half a li")
    GrowingFile(path, FACTS).finish()
    assert content(path) == "a\n"


def test_it_begins_anew_where_its_beginning_is_gone(path):
    write(path, ["a\n", "b\n"])
    os.remove(f"{path}.part")
    file = GrowingFile(path, FACTS)
    assert file.num_rows == 0 and not file.is_whole
    file.append("A\n", 1)
    file.finish()
    assert content(path) == "A\n"


@pytest.mark.parametrize("is_whole", [False, True])
def test_another_file_of_the_name_is_refused(is_whole, path):
    file = write(path, ["a\n"])
    if is_whole:
        file.finish()
    with pytest.raises(UserError, match="another seed: 42 there, 43 now"):
        GrowingFile(path, {**FACTS, "seed": 43})


def test_a_file_that_it_did_not_write_is_left_alone(path):
    with open(path, "w") as file:
        file.write("mine")
    with pytest.raises(UserError, match="not written by this command"):
        GrowingFile(path, FACTS)
    assert content(path) == "mine"


def test_a_damaged_record_is_said(path):
    write(path, ["a\n"])
    with open(f"{path}.json", "w") as file:
        file.write(json.dumps({"facts": FACTS})[:-5])
    with pytest.raises(UserError, match="train.tsv.json is not valid JSON"):
        GrowingFile(path, FACTS)

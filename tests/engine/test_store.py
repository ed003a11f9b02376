"""Stores: what is written comes back, and one is whole or not there."""

import os

import numpy as np
import pytest

from engine.data.store import Column, open_or_build
from engine.disk import files
from engine.errors import UserError

COLUMNS = {"ids": Column("uint16", ragged=True), "label": Column("float32", ragged=False)}
ROWS = [[1, 2, 3], [], [65535], [7, 8], []]
LABELS = [0.5, 1.5, -2, 3, 4]


def chunks():
    for rows, labels in ((ROWS[:2], LABELS[:2]), (ROWS[2:], LABELS[2:])):
        flat = np.array([value for row in rows for value in row])
        yield {"ids": (flat, np.array([len(row) for row in rows])), "label": np.array(labels)}


def test_records_come_back_in_any_order_padded_to_any_length(tmp_path):
    store = open_or_build(str(tmp_path), "s", {"k": 1}, COLUMNS, chunks)
    assert len(store) == 5 and "label" in store and "other" not in store
    assert list(store.lengths("ids")) == [3, 0, 1, 2, 0]
    indices = np.array([3, 0, 1, 3, 2])
    assert store.padded("ids", indices, 4).tolist() == [
        [7, 8, 0, 0], [1, 2, 3, 0], [0, 0, 0, 0], [7, 8, 0, 0], [65535, 0, 0, 0]]
    assert store.scalars("label", indices).tolist() == [3, 0.5, 1.5, 3, -2]


def test_a_second_opening_does_not_build_again_and_another_key_does(tmp_path):
    open_or_build(str(tmp_path), "s", {"k": 1}, COLUMNS, chunks, facts=lambda: {"seen": 5})

    def never():
        raise AssertionError("built again")
    assert open_or_build(str(tmp_path), "s", {"k": 1}, COLUMNS, never).facts == {"seen": 5}
    with pytest.raises(AssertionError):
        open_or_build(str(tmp_path), "s", {"k": 2}, COLUMNS, never)


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield from chunks()
        raise UserError("line 6 is wrong")
    with pytest.raises(UserError):
        open_or_build(str(tmp_path), "s", {"k": 1}, COLUMNS, broken)
    assert os.listdir(tmp_path) == []


def test_a_store_without_records_can_be_opened(tmp_path):
    store = open_or_build(str(tmp_path), "s", {}, COLUMNS, lambda: [])
    assert len(store) == 0 and len(store.lengths("ids")) == 0


def test_the_hash_of_a_file_follows_its_content(tmp_path):
    path, memory = str(tmp_path / "a.tsv"), str(tmp_path / "hashes.json")
    files.write_text(path, "one")
    first = files.content_hash(path, memory)
    assert first == files.content_hash(path, memory) == files.hash_of(b"one")
    files.write_text(path, "two")
    os.utime(path, (1, 1))
    assert files.content_hash(path, memory) == files.hash_of(b"two")

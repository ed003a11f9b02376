"""Stores: what is written comes back."""

import shutil

import numpy as np

from engine.data.store import Column, open_or_build

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


def test_the_files_of_another_store_are_seen_though_its_record_came_with_them(tmp_path, capsys):
    one, other = (open_or_build(str(tmp_path), "s", {"k": key}, COLUMNS, chunks_of) for key, chunks_of in (
        (1, chunks), (2, lambda: [{"ids": (np.array([9]), np.array([1])), "label": np.array([1])}])))
    shutil.rmtree(one.directory)
    shutil.copytree(other.directory, one.directory)
    again = open_or_build(str(tmp_path), "s", {"k": 1}, COLUMNS, chunks)
    assert len(again) == 5 and f"{one.directory} is not as it was written: it is made again" in capsys.readouterr().err


def test_a_store_without_records_can_be_opened(tmp_path):
    store = open_or_build(str(tmp_path), "s", {}, COLUMNS, lambda: [])
    assert len(store) == 0 and len(store.lengths("ids")) == 0

"""Stores: what is written comes back."""


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


def test_a_store_without_records_can_be_opened(tmp_path):
    store = open_or_build(str(tmp_path), "s", {}, COLUMNS, lambda: [])
    assert len(store) == 0 and len(store.lengths("ids")) == 0

"""Newer versions of a model, which the service takes over while clients ask."""

import os
import threading

import pytest

from conftest import on_tensorflow_2
from services import Service, wait_until, write_model

PAIRS = dict(kind="classes", labels=["no", "yes"], label_separator="", takes_pairs=False)


@pytest.fixture
def put(tiny_model, tmp_path):
    """Puts a version there that says `label` to everything."""
    def put_version(number, label):
        write_model(str(tmp_path / "draft"), tiny_model, PAIRS, {"no": -50.0, "yes": 50.0}[label])
        os.rename(str(tmp_path / "draft"), str(tmp_path / "models" / number))
    (tmp_path / "models").mkdir()
    return put_version


@on_tensorflow_2
def test_a_new_version_is_taken_over_without_a_dropped_or_mixed_answer(put, tmp_path):
    put("1", "no")
    service = Service({"toy": tmp_path / "models"}, watch=True, max_batch_tokens=64)
    answers, ended = [], threading.Event()

    def ask():
        while not ended.is_set():
            answer = service.post("/predict", {"inputs": [["the cat"], ["a dog sees"]] * 8})
            answers.append((answer.status, {each[0]["label"] for each in answer.body}))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    try:
        assert service.get("/info").body["model_sha"] == "1"
        for client in clients:
            client.start()
        put("2", "yes")
        wait_until(lambda: service.get("/info").body["model_sha"] == "2")
        (tmp_path / "models" / "3").mkdir()  # a broken one
        wait_until(lambda: any("is not taken over" in line for line in service.lines))
        assert service.get("/info").body["model_sha"] == "2"
    finally:
        ended.set()
        for client in clients:
            client.join()
        status = service.stop()
    assert status == 0 and "Traceback" not in "".join(service.lines)
    assert {status for status, _ in answers} == {200}
    assert all(len(labels) == 1 for _, labels in answers)
    assert {label for _, labels in answers for label in labels} == {"no", "yes"}
    assert answers[-1][1] == {"yes"}

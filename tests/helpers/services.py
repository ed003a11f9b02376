"""The service as a process, and toy models of every kind for it."""

import http.client
import json
import os
import shutil
import signal
import socket
import threading
import time

import numpy as np
import pytest

import processes
import similarity_files
from conftest import ROOT, checkpoint_values

SECONDS = 60.0  # that a test waits at most
RELEASE = os.path.join(ROOT, "tests", "files_of_1.0.0")


class Answer:
    """A response.

    Attributes:
        body: its JSON, or its text.
    """

    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        content = response.read().decode("utf-8")
        is_json = (self.headers["content-type"] or "").startswith("application/json")
        self.body = json.loads(content) if is_json and content else content


class Service:
    """`python -m serving.run` on some models, by name, and any other flags; None leaves a flag out.

    A context manager, which ends it at once; a test that is about the end calls `stop` before.
    """

    def __init__(self, models, env=None, **flags):
        arguments = [f"--model={name}={folder}" for name, folder in models.items()]
        arguments += [f"--{name}={value}" for name, value in {
            "num_cpu_replicas": 1, "engine": "tensorflow", **flags}.items() if value is not None]
        self.process = processes.start(["-m", "serving.run", "--port=0", *arguments], cwd=ROOT, env=env)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("Serving "):
                break
        assert self.process.poll() is None and self.lines, self.lines
        self.port = int(self.lines[-1].rsplit(":", 1)[1])
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)

    def _read(self):
        self.lines += self.process.stderr

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def get(self, path, method="GET", **headers):
        return self.send(method, path, None, headers)

    def post(self, path, body, **headers):
        """Sends JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8")
        return self.send("POST", path, content, {"content-type": "application/json", **headers})

    def send(self, method, path, content, headers):
        connection = self.connect()
        try:
            connection.request(method, path, content, {
                name.replace("_", "-"): value for name, value in headers.items()})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def raw(self, content):
        """Sends bytes, and reads until the service closes the connection."""
        with self.socket() as client:
            client.sendall(content)
            return read_all(client)

    def stop(self):
        """Sends SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return status


def read_all(client):
    parts = []
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)


def request(path, content, *headers):
    """The bytes of a request."""
    return b"\r\n".join([b"POST %s HTTP/1.1" % path, b"Host: localhost", b"Content-Type: application/json",
                         b"Content-Length: %d" % len(content), *headers, b"", content])


def wait_until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_close(values, expected):
    """Equal JSON values, numbers up to 1e-5."""
    if isinstance(expected, dict):
        assert values.keys() == expected.keys()
        values, expected = list(values.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(values) == len(expected)
        for one, other in zip(values, expected):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert values == pytest.approx(expected, abs=1e-5)
    else:
        assert values == expected


def toy_models(folder, tiny_model):
    """Name → folder of a model of each kind."""
    folders = {name: shutil.copytree(os.path.join(RELEASE, name), str(folder / name)) for name in (
        "classifier", "tagger", "reader", "scorer")}
    labels = dict(label_separator="", takes_pairs=False)
    described = {
        "multi": dict(labels, kind="multi_label", labels=["red", "green", "blue"],
                      label_separator=";"),
        "regression": dict(labels, kind="regression", labels=[], takes_pairs=True),
        "pairs": dict(labels, kind="classes", labels=["no", "yes"], takes_pairs=True),
        "choice": dict(kind="multiple_choice")}
    for name, description in described.items():
        folders[name] = str(folder / name)
        write_model(folders[name], tiny_model, description)
    return {**folders, "vectors": str(similarity_files.write_model(folder / "vectors", tiny_model))}


def write_model(folder, tiny_model, description, bias=0.0):
    """A model with random weights in its head; `bias`: of its last label."""
    from engine.checkpoints import checkpoints
    os.makedirs(folder)
    for path in (tiny_model.vocab_file, tiny_model.bert_config_file):
        shutil.copy(path, folder)
    with open(os.path.join(folder, "task.json"), "w") as file:
        json.dump(dict(do_lower_case=True, max_seq_length=24, **description), file)
    outputs, draw = len(description.get("labels", ())) or 1, np.random.RandomState(0)
    checkpoints.write_checkpoint(os.path.join(folder, "model.ckpt"), {
        **checkpoint_values(tiny_model.init_checkpoint),
        "output_bias": np.array([*[0] * (outputs - 1), bias], np.float32),
        "output_weights": draw.randn(outputs, 16).astype(np.float32)})

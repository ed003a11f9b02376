"""Connections have limits on slow clients and long heads, and wait where files run out."""

import socket
import subprocess
import sys
import threading

import pytest

from conftest import ROOT
from serving import connections

SECONDS = 0.5  # for a request to arrive


async def app(scope, receive, send):
    """Answers with the length of the body, which it does not read at /unread."""
    message, length = {"more_body": scope["path"] != "/unread"}, 0
    while message["more_body"]:
        message = await receive()
        length += len(message["body"])
    body = str(length).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setattr(connections, "_GRACE_SECONDS", 0)
    ends = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(
            target=connections.serve, args=(app, listener, SECONDS, ends.is_set))
        thread.start()
        yield listener.getsockname()
        ends.set()
        thread.join()


def answers(address, sent):
    """What arrives until the service closes the connection."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_slow_clients_and_long_heads_meet_limits(address):
    head = b" HTTP/1.1\r\nHost: a\r\n"
    post = b"POST /" + head + b"Content-Length: 3\r\n"
    assert answers(address, b"GET /" + head).startswith(b"HTTP/1.1 408 ")
    assert answers(address, post + b"\r\nab").startswith(b"HTTP/1.1 408 ")
    assert b"408" not in answers(address, b"")
    two = answers(address, post + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\nabc" + post + b"\r\nabc")
    assert two.count(b"HTTP/1.1 200 ") == 2 and two.endswith(b"\r\n\r\n3") and b"408" not in two
    assert answers(address, b"POST /unread" + head + b"Content-Length: 3\r\n\r\nabc").count(b"HTTP/1.1 ") == 1
    try:
        assert answers(address, b"GET /" + head + (b"A: " + b"b" * 1000 + b"\r\n") * 100) == b""
    except ConnectionError:
        pass  # it did not wait for all of them


_FEW_FILES = """
import os, resource, socket, sys
sys.path[:0] = [".", "tests", "tests/serving"]
from serving import connections
from test_http_connections import app
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    connections.serve(app, listener, 20, lambda: os.path.exists(sys.argv[1]))
"""


def test_clients_for_whom_there_is_no_open_file_wait_and_one_line_says_so(tmp_path):
    service = subprocess.Popen([sys.executable, "-c", _FEW_FILES, str(tmp_path / "end")], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True)
    address = ("127.0.0.1", int(service.stdout.readline()))
    clients = [socket.create_connection(address) for _ in range(30)]
    line = service.stderr.readline()
    for client in clients:
        client.close()
    assert b"200 OK" in answers(address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    (tmp_path / "end").touch()
    rest = service.communicate(timeout=60)[1]
    assert line == ("WARNING: new clients wait for others to leave: too many open files: raise the limit "
                    "(ulimit -n)\n") and rest == "" and service.returncode == 0

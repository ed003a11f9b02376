"""What arrives on a worker's connections can close that connection, and nothing else.

Workers are threads of this process where they meet, and forks or programs where they end.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import workers
from conftest import ROOT, on_tensorflow_1
from engine import log
from engine.errors import UserError
from engine.workers import connections, messages, sockets
from engine.workers.cluster import Cluster, PeerLost, from_environment

pytestmark = on_tensorflow_1  # messages depend on no runtime

SECRET = "of the run, and of nobody else"


class Meeting(threading.Thread):
    """A worker that meets the others in a thread."""

    def __init__(self, cluster, seconds=30.0):
        super().__init__(daemon=True)
        self.connections = connections.Connections(cluster, lambda index, link: None)
        self.error, self._address, self._seconds = None, cluster.addresses[cluster.index], seconds
        self.start()
        while not self.connections._listeners:
            time.sleep(0.01)

    def caller(self):
        """A new connection to it."""
        host, port = self._address.split(":")
        return socket.create_connection((host, int(port)), 30)

    def run(self):
        try:
            self.connections.open(self._seconds)
        except (PeerLost, UserError) as error:
            self.error = error

    def end(self):
        self.join(60)
        assert not self.is_alive(), "it hangs"
        return self.error or self.connections


@pytest.fixture
def cluster():
    return Cluster(tuple(workers.free_addresses(2)), 0, SECRET)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(connections, "_RETRY_SECONDS", 0.02)


def answers(connection, *lines):
    """What a worker says to some lines before it closes the connection, without its challenge."""
    with contextlib.suppress(OSError):
        connection.sendall(b"".join(lines))
    said = b""
    with contextlib.suppress(ConnectionError):
        for received in iter(lambda: connection.recv(4096), b""):
            said += received
    found = [json.loads(line.decode()) for line in said.splitlines()]
    return [message for message in found if "challenge" not in message]


def hello_of(cluster, index, challenge, **more):
    hello = {"from": index, "to": 1 - index, "nonce": messages.nonce(),
             "cluster": messages.proof("", cluster.addresses), **more}
    return {**hello, "proof": messages.proof(cluster.secret, "hello", challenge, hello)}


def assert_meets(first, cluster):
    """The other worker comes, and both have met."""
    second = Meeting(cluster._replace(index=1))
    for found, other in ((first.end(), 1), (second.end(), 0)):
        assert list(found.to) == list(found.by) == [other]
    return second


@pytest.mark.parametrize("line", [
    b"[" * 100000 + b"\n", b'{"a":' * 50000, b"x" * 10**7, b"\xff\n", b"5\n", b"{}\n",
    b'{"status": 0}\n', b'{"cluster": []}\n', b"\n"], ids=lambda line: repr(line[:16]))
def test_what_is_no_hello_is_answered_by_closing_the_connection(line, cluster):
    waiting = Meeting(cluster)
    assert answers(waiting.caller(), line) == []
    assert_meets(waiting, cluster)


@pytest.mark.parametrize("more", [
    {"status": 0, "why": ""}, {"status": 256, "why": ""}, {"status": True, "why": ""},
    {"status": "x", "why": ""}, {"status": 3}, {"status": 3, "why": "\x1b[2J"},
    {"status": 3, "why": "x" * 5000}, {"from": 1e999}, {"from": True}, {"more": 1}])
def test_a_hello_with_other_keys_or_values_is_none(more, cluster):
    waiting = Meeting(cluster)
    connection = waiting.caller()
    challenge = json.loads(connection.recv(4096).decode())["challenge"]
    assert not answers(connection, messages.encode(hello_of(cluster, 1, challenge, **more)))
    assert_meets(waiting, cluster)


def test_a_refusal_names_no_address(cluster):
    waiting = Meeting(cluster)
    others = cluster._replace(addresses=("a:1", "b:1"))
    for stranger in (hello_of(others, 1, "0" * 64), hello_of(cluster, 0, "0" * 64)):
        refused, = answers(waiting.caller(), messages.encode(stranger))
        assert "127.0.0.1" not in refused["refused"]
    assert_meets(waiting, cluster)


def test_a_connection_that_says_a_byte_at_a_time_holds_nobody_up(cluster):
    waiting = Meeting(cluster, seconds=0.5)
    connection, sent = waiting.caller(), 0
    while waiting.is_alive() and sent < 600:
        with contextlib.suppress(OSError):
            connection.sendall(b"{")
        sent += 1
        waiting.join(0.1)
    assert sent < 600 and "could not be reached for 0.5 s" in str(waiting.end())


@pytest.mark.parametrize("secret", ["", SECRET])
def test_silent_connections_hold_nobody_up(secret, cluster):
    cluster = cluster._replace(secret=secret)
    waiting = Meeting(cluster)
    silent = [waiting.caller() for _ in range(20)]
    assert_meets(waiting, cluster)
    assert silent


def say_hello(connection, cluster):
    """Says what worker 1 says to worker 0; returns the answer."""
    challenge = json.loads(connection.recv(4096).decode())["challenge"]
    connection.sendall(messages.encode(hello_of(cluster, 1, challenge)))
    return json.loads(connection.recv(4096).decode())


@pytest.mark.parametrize("closes", [True, False])
def test_a_hello_without_a_confirmation_neither_counts_nor_holds_anybody_up(closes, cluster):
    waiting = Meeting(cluster)
    connection = waiting.caller()
    assert "welcome" in say_hello(connection, cluster)
    if closes:
        connection.close()
    second = assert_meets(waiting, cluster)
    second.connections.to[0].send({"key": "a", "value": 1})
    received = waiting.connections.by[1].receive(*messages.JOINED)
    assert received == {"key": "a", "value": 1}


def test_a_hello_for_a_connected_worker_is_refused(cluster):
    waiting = Meeting(cluster)
    connection = waiting.caller()
    assert "welcome" in say_hello(connection, cluster)
    connection.sendall(b"{}\n")
    while not waiting.connections.by:
        time.sleep(0.01)
    assert say_hello(waiting.caller(), cluster) == {
        "refused": "worker 1 is connected already"}


def test_a_worker_with_another_secret_is_refused(cluster):
    waiting = Meeting(cluster, seconds=1)
    other = Meeting(cluster._replace(index=1, secret="another one"), seconds=1)
    for each in (waiting, other):
        assert "there is another secret" in str(each.end())


def test_what_one_hello_proves_another_connection_does_not(cluster):
    waiting = Meeting(cluster)
    replayed = messages.encode(hello_of(cluster, 1, messages.nonce()))
    assert answers(waiting.caller(), replayed) == [
        {"refused": "there is another secret of the run"}]
    assert_meets(waiting, cluster)


def test_who_listens_must_know_the_secret_too(cluster):
    listener, = sockets.listen(cluster.addresses[1])
    listener.settimeout(30)
    waiting = Meeting(cluster, seconds=0.5)
    link = sockets.Link(listener.accept()[0])
    link.send({"challenge": "0" * 64})
    link.receive(messages.HELLO)
    link.send({"welcome": "0" * 64})
    assert "does not know the run's secret" in str(waiting.end())
    listener.close()


def test_the_secret_is_nowhere_to_be_seen(cluster):
    environment = {"TF_CONFIG": workers.tf_config(cluster.addresses, 0), "CLUSTER_SECRET": SECRET}
    found = from_environment(environment)
    assert found.secret == SECRET and not environment and SECRET not in f"{found!r} {found}"


@pytest.mark.parametrize("content, said", [
    (None, "regular file"), (b"too short\n\n", "fewer than 16")])
def test_a_file_without_a_secret_is_refused(content, said, tmp_path, cluster):
    path = tmp_path / "secret"
    if content:
        path.write_bytes(content)
    else:
        os.mkfifo(str(path))
    with pytest.raises(UserError, match=f"--cluster_secret_file {path} .*{said}"):
        from_environment({}, str(path))
    path.unlink()
    path.write_text(f" {SECRET}\n")
    config = {"TF_CONFIG": workers.tf_config(cluster.addresses, 0)}
    assert from_environment(config, str(path)).secret == SECRET


@pytest.mark.parametrize("line, said", [
    ('{"key": "a"}', "lost: it sent an invalid message"), ("[" * 200000, "lost: it sent"),
    ('{"status": 3, "why": "\x1b[2J"}', "lost: it sent an invalid message"),
    ('{"key": "a", "value": 1}', "worker 1 (127.0.0.1:2) is "),
    ("{}", "lost: the connection was closed"),
    ('{"status": 3, "why": "so"}', "has ended: so")], ids=lambda text: repr(text[:24]))
def test_whatever_a_joined_worker_says_its_end_is_noticed(line, said):
    found = subprocess.run(
        [sys.executable, "-c", "from benchmarks import connection_fuzz as fuzz; import sys\n"
         "fuzz.coordination._GRACE_SECONDS = fuzz.coordination._LAST_WORDS_SECONDS = 0\n"
         "print(fuzz.Joined().end_after(sys.stdin.buffer.read()))"],
        input=f"{line}\n".encode(), stdout=subprocess.PIPE, cwd=ROOT, check=True)
    assert said in found.stdout.decode()


@pytest.mark.parametrize("address, hosts", [
    ("127.0.0.1:0", {"127.0.0.1"}), ("198.51.100.1:0", {"::", "0.0.0.0"}),
    ("no-such-host.invalid:0", {"::", "0.0.0.0"})])
def test_a_worker_listens_at_its_own_address_alone(address, hosts):
    for listener in sockets.listen(address):
        assert listener.getsockname()[0] in hosts
        listener.close()


def test_random_messages_end_nothing():
    subprocess.run([sys.executable, "-m", "benchmarks.connection_fuzz", "--cases=100"], cwd=ROOT,
                   check=True)


def test_control_characters_are_escaped_and_no_others():
    said = "文　字 👩‍🎓 \x1b[2J\u202e\ud800\n"
    shown = "文　字 👩‍🎓 \\x1b[2J\\u202e\\ud800\\n"
    assert messages.last_words(2, said)["why"] == log.visible(said) == shown
    line = messages.encode(messages.last_words(2, said))
    assert messages.decode(line, messages.LAST_WORDS)["why"] == shown
    with pytest.raises(ValueError):
        messages.decode(messages.encode({"status": 2, "why": said}), messages.LAST_WORDS)

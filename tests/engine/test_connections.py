"""What arrives on a worker's connections can close that connection, and nothing else.

Workers are threads of this process where they meet, and programs where they end.
"""

import contextlib
import json
import socket
import threading
import time

import pytest

import workers
from conftest import on_tensorflow_1
from engine.errors import UserError
from engine.workers import connections, messages
from engine.workers.cluster import Cluster, PeerLost

pytestmark = on_tensorflow_1  # messages depend on no runtime


def connect(cluster):
    """A new connection to the chief, as soon as it listens."""
    host, port = cluster.addresses[0].split(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)), 30)
        time.sleep(0.01)


class Meeting(threading.Thread):
    """A worker that meets the others in a thread."""

    def __init__(self, cluster, seconds=30.0):
        super().__init__(daemon=True)
        self.connections = connections.Connections(cluster, lambda index, link: None)
        self.error, self._seconds = None, seconds
        self.start()

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
    return Cluster(tuple(workers.free_addresses(2)), 0)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(connections, "_RETRY_SECONDS", 0.02)


def answers(connection, *lines):
    """What the chief says to some lines before it closes the connection."""
    with contextlib.suppress(OSError):
        connection.sendall(b"".join(lines))
    said = b""
    with contextlib.suppress(ConnectionError):
        for received in iter(lambda: connection.recv(4096), b""):
            said += received
    return [json.loads(line.decode()) for line in said.splitlines()]


def hello_of(of, index, **more):
    cluster_hash = connections.Connections(of, lambda index, link: None)._cluster_hash
    return messages.encode({"from": index, "cluster": cluster_hash, **more})


def say_hello(connection, cluster):
    """Says what worker 1 says to the chief; returns the answer."""
    connection.sendall(hello_of(cluster, 1))
    return json.loads(connection.recv(4096).decode())


def assert_meets(chief, cluster):
    """The other worker comes, and both have met."""
    second = Meeting(cluster._replace(index=1))
    for connected, other in ((chief.end(), 1), (second.end(), 0)):
        assert list(connected.links) == [other]
    return second


def test_what_is_no_hello_closes_its_connection_alone_and_a_refusal_names_no_address(cluster):
    chief = Meeting(cluster)
    for line in (b"[" * 100000 + b"\n", b'{"a":' * 50000, b"x" * 10**7, b"\xff\n", b"5\n", b"{}\n",
                 b'{"cluster": []}\n', b"\n", hello_of(cluster, 1, more=1)):
        assert answers(connect(cluster), line) == [], line[:16]
    others = cluster._replace(addresses=("a:1", "b:1"))
    for stranger in (hello_of(others, 1), hello_of(cluster, 0), hello_of(cluster, 2)):
        assert answers(connect(cluster), stranger) == [
            {"refused": "there is a worker of another cluster"}]
    assert_meets(chief, cluster)


def test_a_connection_that_says_a_byte_at_a_time_or_nothing_holds_nobody_up(cluster, monkeypatch):
    monkeypatch.setattr(connections, "_ANSWER_SECONDS", 0.5)
    chief = Meeting(cluster)
    silent, slow = [connect(cluster) for _ in range(20)], connect(cluster)
    end = time.monotonic() + 30
    with contextlib.suppress(OSError):  # it is closed when the time for a hello is over
        while time.monotonic() < end:
            slow.sendall(b"{")
            time.sleep(0.05)
    assert time.monotonic() < end
    assert_meets(chief, cluster)
    assert silent


@pytest.mark.parametrize("closes", [True, False])
def test_a_hello_without_a_confirmation_neither_counts_nor_holds_anybody_up(closes, cluster):
    chief = Meeting(cluster)
    connection = connect(cluster)
    assert say_hello(connection, cluster) == {}
    if closes:
        connection.close()
    second = assert_meets(chief, cluster)
    second.connections.links[0].send({"key": "a", "value": 1})
    received = chief.connections.links[1].receive(*messages.JOINED)
    assert received == {"key": "a", "value": 1}


def test_two_workers_that_cannot_reach_each_other_are_named_before_the_training():
    """As behind a firewall between them: both have joined the chief."""
    of_three = Cluster(tuple(workers.free_addresses(3)), 0)
    chief = Meeting(of_three)
    second = Meeting(of_three._replace(index=1), seconds=1.0)
    with connect(of_three) as third:  # joins, and opens no port
        third.sendall(hello_of(of_three, 2))
        third.recv(4096)
        third.sendall(messages.encode({}))
        assert sorted(chief.end().links) == [1, 2]
        assert "worker 2" in str(second.end()) and "could not be reached" in str(second.end())


@pytest.mark.parametrize("line, said", [
    ('{"key": "a"}', "is lost: it sent an invalid message"), ("[" * 200000, "is lost: it sent"),
    ('{"key": "a", "value": 1}', ") is at 'a', worker 0"),
    ("{}", "is lost: the connection was closed"),
    ('{"worker": 9, "status": 3, "why": "so"}', "has ended: so")], ids=lambda text: repr(text[:24]))
def test_whatever_a_joined_worker_says_its_end_is_noticed(line, said, cluster, tmp_path):
    chief, = workers.start_command(
        tmp_path, ["-m", "tests.helpers.toy_worker"], lambda index: {"call": "fail", "arguments": '[1, ""]'},
        cluster.addresses, which=(0,))
    connection = connect(cluster)
    connection.sendall(hello_of(cluster, 1) + b"{}\n" + line.encode() + b"\n")
    if line == "{}":  # the chief takes all other lines for the end
        connection.shutdown(socket.SHUT_WR)  # to close it with something unread would reset it
    ended = chief.end()
    connection.close()
    assert "error: " in ended.said and "worker 1 (127.0.0.1:" in ended.said and said in ended.said


def test_a_worker_listens_on_all_interfaces(cluster):
    port = messages.host_and_port(cluster.addresses[0])[1]
    found = {listener.getsockname()[:2] for listener in messages.listen(port)}
    assert ("0.0.0.0", port) in found <= {("0.0.0.0", port), ("::", port)}

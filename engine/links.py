"""Connections from each worker of a run to each other one, at the addresses of TF_CONFIG.

A message is a line of JSON. Before TensorFlow's server opens a worker's port, the worker itself
listens there; so nothing but the ports of TF_CONFIG need be open between machines. Connections
outlive the change.
"""

import contextlib
import json
import os
import select
import socket
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from engine.errors import USER_ERROR_STATUS, UserError
from engine.machines import PEER_LOST_STATUS, Cluster, Lost

_ANSWER_SECONDS = 5.0  # for a connection, and for what is said first on it
_RETRY_SECONDS = 0.5
_LOCK_SECONDS = 1.0
_PORT_SECONDS = 3.0  # for an earlier attempt of the run, which is still ending, to free the port
_LONGEST_LINE = 1 << 24
_READ_BYTES = 1 << 20

Message = Mapping[str, Any]


class Link:
    """A connection to another worker."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._received = b""
        self._next: List[Dict[str, Any]] = []  # messages that came with the first one
        self._lock = threading.Lock()  # of who sends

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Sends a message. Raises an OSError if the connection is gone."""
        line = json.dumps(message).encode("utf-8") + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def send_if_free(self, message: Message) -> None:
        """Sends a short message, or leaves it: never waits for long, and raises nothing."""
        if self._lock.acquire(timeout=_LOCK_SECONDS):
            try:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if poll.poll(0):
                    self._socket.sendall(json.dumps(message).encode("utf-8") + b"\n")
            except OSError:
                pass  # who reads finds it, too
            finally:
                self._lock.release()

    def receive(self) -> List[Dict[str, Any]]:
        """Reads what has come, and waits if nothing has: the messages that are complete.

        Raises:
            OSError: the connection is gone.
            ValueError: what has come is no message.
        """
        if self._next:
            came, self._next = self._next, []
            return came
        read = self._socket.recv(_READ_BYTES)
        if not read:
            raise ConnectionResetError("the connection was closed")
        *lines, self._received = (self._received + read).split(b"\n")
        if len(self._received) > _LONGEST_LINE:
            raise ValueError("a line without an end")
        messages = [json.loads(line.decode("utf-8")) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a line that is no message")
        return messages

    def receive_first(self) -> Dict[str, Any]:
        """The first message on a new connection."""
        self._socket.settimeout(_ANSWER_SECONDS)
        messages: List[Dict[str, Any]] = []
        while not messages:
            messages = self.receive()
        self._socket.settimeout(None)
        first, *self._next = messages
        return first

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


class Links(NamedTuple):
    """All connections of a worker. Made by `connect`."""
    to: Dict[int, Link]  # by worker: what this worker has opened, and what others have
    by: Dict[int, Link]
    listener: Optional[socket.socket] = None  # keeps this worker's port


NONE = Links({}, {})


def connect(cluster: Cluster, timeout: float) -> Links:
    """Connects this worker with each other one, in both directions, as TensorFlow will.

    Args:
        timeout: seconds for which others are tried: their machines, and their names, may come late.

    Raises:
        UserError: a worker's name is not known, or this one's port is in use.
        Lost: a worker cannot be reached, does not reach this one, or has ended. Those that are
            connected are told of either, and end with the same status.
    """
    return _Meeting(cluster, timeout).meet()


class _Meeting:
    """The connections while they are made."""

    def __init__(self, cluster: Cluster, timeout: float):
        self._cluster = cluster
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._others = [i for i in range(len(cluster.addresses)) if i != cluster.index]
        self._to: Dict[int, Link] = {}
        self._by: Dict[int, Link] = {}
        self._errors: Dict[int, Exception] = {}  # why a worker has not been reached so far
        self._failure: Optional[Lost] = None  # of another worker, which has ended

    def meet(self) -> Links:
        listener = self._listen()
        for index in self._others:
            threading.Thread(target=self._reach, args=(index,), daemon=True).start()
        while not self._is_complete():
            if time.monotonic() > self._end:
                self._check_reached()
            if time.monotonic() > self._end + _ANSWER_SECONDS:  # who does not come knows why, first
                self._check_reached_by()
            self._wait(listener)
            if self._failure:
                self._give_up(self._failure, [])
        return Links(self._to, self._by, listener)

    def _listen(self) -> socket.socket:
        end = time.monotonic() + min(self._timeout, _PORT_SECONDS)
        while True:
            try:
                return _listen(self._cluster)
            except OSError as error:
                if time.monotonic() > end:
                    self._give_up(UserError(
                        f"{self._cluster.name(self._cluster.index)}: its port cannot be opened: "
                        f"{error.strerror}; end what uses it, or give another one"), self._others)
                time.sleep(_RETRY_SECONDS)

    def _is_complete(self) -> bool:
        return len(self._to) == len(self._by) == len(self._others)

    def _reach(self, index: int) -> None:
        self._to[index] = self._tell(index, {})

    def _tell(self, index: int, more: Message) -> Link:
        """Says hello to a worker, as often as it takes; to be called in a thread of its own."""
        hello = {"from": self._cluster.index, "to": index, "cluster": self._cluster.addresses}
        while True:
            try:
                link = _open(self._cluster.addresses[index])
                link.send({**hello, **more})
                answer = link.receive_first()
                if answer.get("welcome") is True:
                    return link
                raise ValueError(str(answer.get("refused")))
            except (OSError, ValueError) as error:
                self._errors[index] = error
                time.sleep(_RETRY_SECONDS)

    def _wait(self, listener: socket.socket) -> None:
        """Waits a little for a connection, or for the end of a worker that was reached."""
        reached = dict(self._to)
        ready, _, _ = select.select([listener, *reached.values()], [], [], _RETRY_SECONDS)
        for index, link in reached.items():
            if link in ready:  # nothing else is said on it
                self._note_end(index, _last_words(link) or _last_words(self._by.get(index)))
        if listener in ready:
            self._accept(listener)

    def _note_end(self, index: int, said: Message) -> None:
        why = said.get("why", "the connection was closed")
        self._failure = Lost(f"{self._cluster.name(index)} has ended: {why}",
                             said.get("status", PEER_LOST_STATUS))

    def _accept(self, listener: socket.socket) -> None:
        """Takes a connection. Those of strangers are closed."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        link = Link(connection)
        try:
            hello = link.receive_first()
            refused = self._refused(hello)
            link.send({"refused": refused} if refused else {"welcome": True})
        except (OSError, ValueError):
            link.close()
            return
        if refused:
            link.close()
        elif "status" in hello:
            self._note_end(hello["from"], hello)
        else:
            self._by[hello["from"]] = link

    def _refused(self, hello: Message) -> str:
        if hello.get("cluster") != list(self._cluster.addresses):
            return f"there is a worker of another cluster: {', '.join(self._cluster.addresses)}"
        if hello.get("to") != self._cluster.index or hello.get("from") not in self._others:
            return f"there is worker {self._cluster.index}"
        return ""

    def _check_reached(self) -> None:
        for index in self._others:
            if index not in self._to:
                error = self._errors.get(index)
                said = (f"{self._cluster.name(index)} could not be reached for "
                        f"{self._timeout:g} s (--peer_timeout): {error}")
                kind = UserError if isinstance(error, socket.gaierror) else Lost
                self._give_up(kind(said), list(self._to))

    def _check_reached_by(self) -> None:
        for index in self._others:
            if index not in self._by:
                self._give_up(Lost(
                    f"{self._cluster.name(index)} has not reached this worker at "
                    f"{self._cluster.addresses[self._cluster.index]} for {self._timeout:g} s "
                    "(--peer_timeout)"), list(self._to))

    def _give_up(self, error: Exception, told: Sequence[int]) -> None:
        """Tells others why, and raises the error.

        Args:
            told: whom to tell besides those that have reached this worker.
        """
        end = max(self._end, time.monotonic() + _ANSWER_SECONDS)
        status = error.status if isinstance(error, Lost) else USER_ERROR_STATUS
        message = {"status": status, "why": str(error)}
        for link in self._by.values():
            link.send_if_free(message)
        tellers = [threading.Thread(target=self._tell, args=(index, message), daemon=True)
                   for index in told if index not in self._by]
        for teller in tellers:
            teller.start()
        for teller in tellers:
            teller.join(max(0.0, end - time.monotonic()))
        raise error


def _last_words(link: Optional[Link]) -> Message:
    """What a worker that ends has said on a connection before it closed it: status and reason.

    Empty if it has said nothing.
    """
    with contextlib.suppress(OSError, ValueError):
        while link:
            for message in link.receive():
                if "status" in message:
                    return message
    return {}


def _open(address: str) -> Link:
    host, _, port = address.rpartition(":")
    return Link(socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS))


def _listen(cluster: Cluster) -> socket.socket:
    """Listens at this worker's port, on all interfaces, as TensorFlow's server will."""
    port = int(cluster.addresses[cluster.index].rpartition(":")[2])
    family = socket.AF_INET6 if _has_ipv6() else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(len(cluster.addresses))
    except OSError:
        listener.close()
        raise
    return listener


def _has_ipv6() -> bool:
    return socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")

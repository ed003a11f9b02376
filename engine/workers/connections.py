"""Connections between the chief and each other worker, at the chief's address in TF_CONFIG.

The chief listens at its port before TensorFlow's server does, so only the ports of TF_CONFIG need be
open between machines. The connections stay open afterwards.

Invalid input (`engine.workers.messages`) closes its connection and affects nothing else.
"""

import contextlib
import socket
import threading
import time
from multiprocessing.connection import wait
from typing import Callable, Dict, List

from engine.disk import files
from engine.errors import UserError
from engine.workers import messages
from engine.workers.cluster import Cluster, PeerLost
from engine.workers.messages import Link, Message

_ANSWER_SECONDS = 5.0  # for a connection, and for the whole hello on it
_RETRY_SECONDS = 0.5
_POLL_SECONDS = 0.05
_PORT_SECONDS = 3.0  # for the previous attempt of the run to exit and free the port


class Connections:
    """The connections of a worker: the chief's with all others, another worker's with the chief.

    A worker connects to the chief and says its number; the chief welcomes it; the worker confirms, and
    has joined. A worker that gave up in between reconnects.

    Args:
        cluster: all workers.
        receive: receives a worker's messages until the connection with it ends; called in a thread
            of its own for each connection.

    Attributes:
        links: the connections, by the other worker's number.
    """

    def __init__(self, cluster: Cluster, receive: Callable[[int, Link], None]):
        self.links: Dict[int, Link] = {}
        self._cluster = cluster
        self._receive = receive
        self._cluster_hash = files.hash_of(repr(cluster.addresses).encode("utf-8"))
        self._listeners: List[socket.socket] = []

    def open(self, timeout: float) -> None:
        """Connects the chief with each other worker, and takes this worker's port.

        Args:
            timeout: seconds to retry: other machines, and their names, may appear late.

        Raises:
            UserError: a worker's name is unknown, or this one's port is in use.
            PeerLost: another worker cannot be reached, or does not reach the chief.
        """
        end = time.monotonic() + timeout
        if self._cluster.is_chief:
            self._take_port()
            self._wait_for_others(timeout, end)
        else:
            self._retry(0, timeout, end, self._join)
            self._take_port()  # after it has joined: the others are to hear why it fails
        for index in self._cluster.others:  # TensorFlow connects each worker with each other one
            is_joined = 0 in (index, self._cluster.index)
            self._retry(index, timeout, end, self._look_up if is_joined else self._reach)

    def close_port(self) -> None:
        """Frees this worker's port."""
        for listener in self._listeners:
            listener.close()

    def _take_port(self) -> None:
        own, end = self._cluster.addresses[self._cluster.index], time.monotonic() + _PORT_SECONDS
        while not self._listeners:
            try:
                self._listeners = messages.listen(messages.host_and_port(own)[1])
            except OSError as error:
                if time.monotonic() > end:
                    raise UserError(
                        f"{self._cluster.name(self._cluster.index)}: its port cannot be opened: "
                        f"{error.strerror}; stop the process that uses it, or choose "
                        "another port") from error
                time.sleep(_RETRY_SECONDS)

    def _retry(self, index: int, timeout: float, end: float, reach: Callable[[int], None]) -> None:
        """Calls `reach` for a worker until it does not fail."""
        while True:
            try:
                return reach(index)
            except (OSError, ValueError) as error:
                if time.monotonic() > end:
                    kind = UserError if isinstance(error, socket.gaierror) else PeerLost
                    raise kind(f"{self._cluster.name(index)} could not be reached for {timeout:g} s "
                               f"(--peer_timeout): {error}") from error
                time.sleep(_RETRY_SECONDS)

    def _look_up(self, index: int) -> None:
        socket.getaddrinfo(*messages.host_and_port(self._cluster.addresses[index]))

    def _reach(self, index: int) -> None:
        messages.connect(self._cluster.addresses[index], _ANSWER_SECONDS).close()

    def _join(self, index: int) -> None:
        """Connects to the chief and says hello."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        link = messages.connect(self._cluster.addresses[index], _ANSWER_SECONDS)
        try:
            link.send({"from": self._cluster.index, "cluster": self._cluster_hash})
            answer = link.receive(messages.HEARTBEAT, messages.REFUSAL, deadline=deadline)
            if answer:
                raise ValueError(answer["refused"])
            link.trust()
            link.send({})
        except (OSError, ValueError):
            link.close()
            raise
        self.links[index] = link
        _start(self._receive, index, link)

    def _wait_for_others(self, timeout: float, end: float) -> None:
        while len(self.links) < len(self._cluster.others):
            if time.monotonic() > end:
                missing = min(set(self._cluster.others) - set(self.links))
                raise PeerLost(f"{self._cluster.name(missing)} has not reached {self._cluster.name(0)} "
                               f"for {timeout:g} s (--peer_timeout)")
            for listener in wait(self._listeners, _POLL_SECONDS):
                with contextlib.suppress(OSError):
                    _start(self._greet, Link(listener.accept()[0]))

    def _greet(self, link: Link) -> None:
        """Receives a worker, if it is one, on a new connection."""
        try:
            deadline = time.monotonic() + _ANSWER_SECONDS
            hello = link.receive(messages.HELLO, deadline=deadline)
            refused = self._refused(hello)
            if refused:
                link.send({"refused": refused})
                raise ValueError(refused)
            link.send({})
            link.receive(messages.HEARTBEAT, deadline=deadline)
            link.trust()
            if self.links.setdefault(hello["from"], link) is not link:
                raise ValueError("it is connected already")
        except (OSError, ValueError):
            link.close()
            return
        self._receive(hello["from"], link)

    def _refused(self, hello: Message) -> str:
        index = hello["from"]
        if hello["cluster"] != self._cluster_hash or index not in self._cluster.others:
            return "there is a worker of another cluster"
        return f"worker {index} is connected already" if index in self.links else ""


def _start(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()

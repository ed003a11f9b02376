"""Connections between all workers of a run, at the addresses of TF_CONFIG.

A worker listens at its port before TensorFlow's server does, so only the ports of TF_CONFIG need be
open between machines. The connections stay open afterwards.

Invalid input (`engine.workers.messages`) closes its connection and affects nothing else.
"""

import contextlib
import hmac
import socket
import threading
import time
from multiprocessing.connection import wait
from typing import Callable, Dict, List

from engine.errors import UserError
from engine.workers import messages, sockets
from engine.workers.cluster import Cluster, PeerLost
from engine.workers.messages import Message
from engine.workers.sockets import Link

_ANSWER_SECONDS = 5.0  # for a connection, and for the whole hello on it
_RETRY_SECONDS = 0.5
_POLL_SECONDS = 0.05
_PORT_SECONDS = 3.0  # for the previous attempt of the run to exit and free the port
_MOST_STRANGERS = 256  # connections of processes that have not joined


class Connections:
    """The connections of a worker with all others, in both directions, as TensorFlow's will be.

    The listening worker sends a challenge. The caller answers with its number and a proof that it
    knows the run's secret, if there is one; the listener welcomes it, with a proof, too; the
    caller confirms, and has joined. A caller that gave up in between reconnects.

    Args:
        cluster: all workers.
        receive: receives a worker's messages until a connection with it ends; called in a thread
            of its own for each connection.

    Attributes:
        to: the connections that this worker has opened, by the other worker's number.
        by: those that the others have opened.
    """

    def __init__(self, cluster: Cluster, receive: Callable[[int, Link], None]):
        self.to: Dict[int, Link] = {}
        self.by: Dict[int, Link] = {}
        self._cluster = cluster
        self._receive = receive
        self._cluster_hash = messages.proof("", cluster.addresses)
        self._listeners: List[socket.socket] = []
        self._strangers: List[Link] = []  # the oldest first
        self._errors: Dict[int, Exception] = {}  # the last error of connecting to a worker

    def open(self, timeout: float) -> None:
        """Connects this worker with each other one.

        Args:
            timeout: seconds to retry: other machines, and their names, may appear late.

        Raises:
            UserError: a worker's name is unknown, or this one's port is in use.
            PeerLost: a worker cannot be reached, or does not reach this one.
        """
        end = time.monotonic() + timeout
        others = self._cluster.others
        for index in others:
            _start(self._call, index, end)
        try:
            self._listen()
        except UserError:  # the others cannot reach this worker, and are to hear why
            while len(self.to) < len(others) and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
            raise
        while len(self.to) < len(others) or len(self.by) < len(others):
            self._check_time(timeout, time.monotonic() - end)
            for listener in wait(self._listeners, _POLL_SECONDS):
                self._accept(listener)

    def close_port(self) -> None:
        """Frees the port at which this worker listens."""
        for listener in self._listeners:
            listener.close()

    def _listen(self) -> None:
        index, end = self._cluster.index, time.monotonic() + _PORT_SECONDS
        while not self._listeners:
            try:
                self._listeners = sockets.listen(self._cluster.addresses[index])
            except OSError as error:
                if time.monotonic() > end:
                    raise UserError(
                        f"{self._cluster.name(index)}: its port cannot be opened: "
                        f"{error.strerror}; stop the process that uses it, or choose "
                        "another port") from error
                time.sleep(_RETRY_SECONDS)

    def _check_time(self, timeout: float, late: float) -> None:
        """Raises the error of a missing worker once the timeout has passed."""
        for index in self._cluster.others:
            if late > 0 and index not in self.to:
                error = self._errors.get(index, "no answer")
                kind = UserError if isinstance(error, socket.gaierror) else PeerLost
                raise kind(f"{self._cluster.name(index)} could not be reached for {timeout:g} s "
                           f"(--peer_timeout): {error}")
            if late > _ANSWER_SECONDS and index not in self.by:  # it reports first
                raise PeerLost(f"{self._cluster.name(index)} has not reached this worker at "
                               f"{self._cluster.addresses[self._cluster.index]} for {timeout:g} s "
                               "(--peer_timeout)")

    def _call(self, index: int, end: float) -> None:
        """Connects to a worker, with retries."""
        while time.monotonic() < end:
            link = None
            try:
                link = sockets.connect(self._cluster.addresses[index], _ANSWER_SECONDS)
                self._say_hello(link, index)
                break
            except (OSError, ValueError) as error:
                if link:
                    link.close()
                self._errors[index] = error
                time.sleep(_RETRY_SECONDS)
        else:
            return
        self.to[index] = link
        self._receive(index, link)

    def _say_hello(self, link: Link, index: int) -> None:
        secret, deadline = self._cluster.secret, time.monotonic() + _ANSWER_SECONDS
        challenge = link.receive(messages.CHALLENGE, deadline=deadline)["challenge"]
        hello = {"from": self._cluster.index, "to": index, "nonce": messages.nonce(),
                 "cluster": self._cluster_hash}
        link.send({**hello, "proof": messages.proof(secret, "hello", challenge, hello)})
        answer = link.receive(messages.WELCOME, messages.REFUSAL, deadline=deadline)
        if "refused" in answer:
            raise ValueError(answer["refused"])
        if not hmac.compare_digest(
                answer["welcome"], messages.proof(secret, "welcome", challenge, hello)):
            raise ValueError("the process that listens there does not know the run's secret")
        link.trust()
        link.send({})

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link = Link(listener.accept()[0])
            self._strangers.append(link)
            _start(self._greet, link)
        for link in self._strangers[:-_MOST_STRANGERS]:
            link.close()

    def _greet(self, link: Link) -> None:
        """Receives a worker, if it is one, on a new connection."""
        try:
            index = self._hear_hello(link)
        except (OSError, ValueError):
            link.close()
            return
        finally:
            self._strangers.remove(link)
        self._receive(index, link)

    def _hear_hello(self, link: Link) -> int:
        """The number of the worker that has joined on a connection."""
        deadline, challenge = time.monotonic() + _ANSWER_SECONDS, messages.nonce()
        link.send({"challenge": challenge})
        hello = link.receive(messages.HELLO, deadline=deadline)
        index, proof = hello["from"], hello.pop("proof")
        refused = self._refused(hello, proof, challenge)
        if refused:
            link.send({"refused": refused})
            raise ValueError(refused)
        link.send({"welcome": messages.proof(self._cluster.secret, "welcome", challenge, hello)})
        link.trust()
        link.receive(messages.HEARTBEAT)
        if self.by.setdefault(index, link) is not link:
            raise ValueError("it is connected already")
        return index

    def _refused(self, hello: Message, proof: str, challenge: str) -> str:
        index = hello["from"]
        if hello["cluster"] != self._cluster_hash:
            return "there is a worker of another cluster"
        if hello["to"] != self._cluster.index or index not in self._cluster.others:
            return f"there is worker {self._cluster.index}"
        if not hmac.compare_digest(
                proof, messages.proof(self._cluster.secret, "hello", challenge, hello)):
            return "there is another secret of the run"
        return f"worker {index} is connected already" if index in self.by else ""


def _start(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()

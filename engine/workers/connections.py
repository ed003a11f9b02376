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
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from engine.errors import USER_ERROR_STATUS, UserError
from engine.workers import messages, sockets
from engine.workers.cluster import PEER_LOST_STATUS, Cluster, PeerLost
from engine.workers.messages import Message
from engine.workers.sockets import Link

_ANSWER_SECONDS = 5.0  # for a connection, and for the whole hello on it
_RETRY_SECONDS = 0.5
_POLL_SECONDS = 0.05
_LAST_WORDS_SECONDS = 1.0
_PORT_SECONDS = 3.0  # for the previous attempt of the run to exit and free the port
_MOST_STRANGERS = 256  # connections without a hello so far


class Links(NamedTuple):
    """All connections of a worker. Made by `connect`."""
    to: Dict[int, Link]  # by worker: opened by this worker (to), and by the others (by)
    by: Dict[int, Link]
    listeners: Sequence[socket.socket] = ()  # keep this worker's port


NONE = Links({}, {})


def connect(cluster: Cluster, timeout: float) -> Links:
    """Connects this worker with each other one, in both directions, as TensorFlow will.

    Args:
        timeout: seconds to retry: other machines, and their names, may appear late.

    Raises:
        UserError: a worker's name is unknown, or this one's port is in use.
        PeerLost: a worker cannot be reached, does not reach this one, or has exited.

    Other workers are notified of either error, and exit with its status.
    """
    return _Handshake(cluster, timeout).run()


class _Handshake:
    """The handshakes of one worker with all others.

    The listening worker sends a challenge. The caller answers with its number and a proof that it
    knows the run's secret, if there is one; the listener welcomes it, with a proof, too; the
    caller confirms, and has joined. A caller that gave up in between reconnects.
    """

    def __init__(self, cluster: Cluster, timeout: float):
        self._cluster = cluster
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._cluster_hash = messages.proof("", cluster.addresses)
        self._others = [i for i in range(len(cluster.addresses)) if i != cluster.index]
        # Connections without a hello: the challenge and the deadline; the oldest first.
        self._strangers: Dict[Link, Tuple[str, float]] = {}
        self._to: Dict[int, Link] = {}
        self._by: Dict[int, Link] = {}
        self._joined: Set[int] = set()  # the workers in `_by` that have confirmed
        self._errors: Dict[int, Exception] = {}  # the last error of connecting to a worker
        self._confirmation: Message = {}  # the last message to each worker; or an exit message
        self._failure: Optional[PeerLost] = None  # another worker has exited

    def run(self) -> Links:
        listeners = self._listen()
        self._reach_others()
        while not self._is_complete():
            if time.monotonic() > self._end:
                self._check_reached()
            if time.monotonic() > self._end + _ANSWER_SECONDS:  # the missing worker reports first
                self._check_reached_by()
            self._serve(listeners)
            if self._failure:
                self._give_up(self._failure)
        for link in self._strangers:
            link.close()
        return Links(self._to, self._by, listeners)

    def _listen(self) -> List[socket.socket]:
        end = time.monotonic() + min(self._timeout, _PORT_SECONDS)
        while True:
            try:
                return sockets.listen(self._cluster.addresses[self._cluster.index])
            except OSError as error:
                if time.monotonic() > end:
                    self._give_up_port(UserError(
                        f"{self._cluster.name(self._cluster.index)}: its port cannot be opened: "
                        f"{error.strerror}; stop the process that uses it, or choose "
                        "another port"))
                time.sleep(_RETRY_SECONDS)

    def _is_complete(self) -> bool:
        return len(self._to) == len(self._joined) == len(self._others)

    def _reach_others(self) -> List[threading.Thread]:
        reaching = [threading.Thread(target=self._reach, args=(index,), daemon=True)
                    for index in self._others]
        for thread in reaching:
            thread.start()
        return reaching

    def _reach(self, index: int) -> None:
        """Connects to a worker, with retries; runs in its own thread."""
        while True:
            link = None
            try:
                link = sockets.connect(self._cluster.addresses[index], _ANSWER_SECONDS)
                self._say_hello(link, index)
                self._to[index] = link
                return
            except (OSError, ValueError) as error:
                if link:
                    link.close()
                if self._confirmation and isinstance(error, (BrokenPipeError, ConnectionResetError)):
                    return  # it has exited itself
                self._errors[index] = error
                time.sleep(_RETRY_SECONDS)

    def _say_hello(self, link: Link, index: int) -> None:
        secret, deadline = self._cluster.secret, time.monotonic() + _ANSWER_SECONDS
        challenge = link.wait_for(deadline, messages.CHALLENGE)["challenge"]
        hello = {"from": self._cluster.index, "to": index, "nonce": messages.nonce(),
                 "cluster": self._cluster_hash}
        link.send({**hello, "proof": messages.proof(secret, "hello", challenge, hello)})
        answer = link.wait_for(deadline, messages.WELCOME, messages.REFUSAL)
        if "refused" in answer:
            raise ValueError(answer["refused"])
        if not hmac.compare_digest(
                answer["welcome"], messages.proof(secret, "welcome", challenge, hello)):
            raise ValueError("the process that listens there does not know the run's secret")
        link.trust()
        link.send(self._confirmation)

    def _serve(self, listeners: Sequence[socket.socket]) -> None:
        """Handles the input of all connections, or waits briefly."""
        reached = {link: index for index, link in dict(self._to).items()}
        welcomed = {link: index for index, link in self._by.items() if index not in self._joined}
        for ready in wait([*listeners, *self._strangers, *welcomed, *reached], _POLL_SECONDS):
            if ready in reached:  # carries only exit messages
                index = reached[ready]
                self._note_end(index, _last_words(ready) or _last_words(self._by.get(index)))
            elif ready in welcomed:
                if self._by.get(welcomed[ready]) is ready:  # not replaced in this round
                    self._join(welcomed[ready])
            elif ready in self._strangers:
                self._hear_hello(ready)
            else:
                self._accept(ready)
        self._drop_strangers()

    def _note_end(self, index: int, said: Message) -> None:
        why = said.get("why", "the connection was closed")
        self._failure = PeerLost(f"{self._cluster.name(index)} has ended: {why}",
                                 said.get("status") or PEER_LOST_STATUS)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link, challenge = sockets.accept(listener), messages.nonce()
            link.send({"challenge": challenge})
            self._strangers[link] = challenge, time.monotonic() + _ANSWER_SECONDS

    def _hear_hello(self, link: Link) -> None:
        """Welcomes or refuses a worker. Rejects connections of other runs."""
        try:
            hello = link.receive_one(messages.HELLO)
            if hello is None:
                return
            (challenge, _), found = self._strangers.pop(link), hello.pop("proof")
            refused = self._refused(hello, found, challenge)
            if refused:
                link.send({"refused": refused})
                raise ValueError(refused)
            link.send({"welcome": messages.proof(
                self._cluster.secret, "welcome", challenge, hello)})
            link.trust()
            self._forget(hello["from"])
            self._by[hello["from"]] = link
        except (OSError, ValueError):
            self._strangers.pop(link, None)
            link.close()

    def _refused(self, hello: Message, proof: str, challenge: str) -> str:
        index = hello["from"]
        if hello["cluster"] != self._cluster_hash:
            return "there is a worker of another cluster"
        if hello["to"] != self._cluster.index or index not in self._others:
            return f"there is worker {self._cluster.index}"
        if not hmac.compare_digest(
                proof, messages.proof(self._cluster.secret, "hello", challenge, hello)):
            return "there is another secret of the run"
        if index in self._by and not self._by[index].is_closed():
            return f"worker {index} is connected already"
        return ""

    def _join(self, index: int) -> None:
        """Marks a worker as joined after its confirmation; forgets it if the connection closes."""
        try:
            message = self._by[index].receive_one(messages.HEARTBEAT, messages.LAST_WORDS)
            if message:
                self._note_end(index, message)
            elif message is not None:
                self._joined.add(index)
        except (OSError, ValueError):
            self._forget(index)

    def _forget(self, index: int) -> None:
        if index in self._by:
            self._by.pop(index).close()
            self._joined.discard(index)

    def _drop_strangers(self) -> None:
        """Closes connections without a hello: timed-out ones, and the oldest of too many."""
        now = time.monotonic()
        for number, (link, (_, deadline)) in enumerate(reversed(list(self._strangers.items()))):
            if number >= _MOST_STRANGERS or now > deadline:
                self._strangers.pop(link)
                link.close()

    def _check_reached(self) -> None:
        for index in self._others:
            if index not in self._to:
                error = self._errors.get(index, "no answer")
                said = (f"{self._cluster.name(index)} could not be reached for "
                        f"{self._timeout:g} s (--peer_timeout): {error}")
                kind = UserError if isinstance(error, socket.gaierror) else PeerLost
                self._give_up(kind(said))

    def _check_reached_by(self) -> None:
        for index in self._others:
            if index not in self._joined:
                self._give_up(PeerLost(
                    f"{self._cluster.name(index)} has not reached this worker at "
                    f"{self._cluster.addresses[self._cluster.index]} for {self._timeout:g} s "
                    "(--peer_timeout)"))

    def _give_up_port(self, error: UserError) -> None:
        """Notifies all workers, which cannot reach this one, of an error, and raises it."""
        self._confirmation = messages.last_words(USER_ERROR_STATUS, str(error))
        for thread in self._reach_others():
            thread.join(max(0.0, self._end - time.monotonic()))
        raise error

    def _give_up(self, error: Exception) -> None:
        """Notifies the workers that have reached this one of an error, and raises it."""
        status = error.status if isinstance(error, PeerLost) else USER_ERROR_STATUS
        for link in self._by.values():
            link.send_if_free(messages.last_words(status, str(error)))
        raise error


def _last_words(link: Optional[Link]) -> Message:
    """The exit message of a peer, or {}."""
    deadline, message = time.monotonic() + _LAST_WORDS_SECONDS, {}
    with contextlib.suppress(OSError, ValueError):
        while link and "status" not in message:
            message = link.wait_for(deadline, *messages.JOINED)
    return message

"""Coordination with the other workers of a run: values, barriers, heartbeats.

TensorFlow waits for a lost worker for ever, in a call that nothing interrupts. So every worker
sends heartbeats to all others. A worker that receives none for --heartbeat_timeout seconds, or
finds a connection closed, notifies the others and exits.

Messages arrive in the order in which they were sent. A worker that is at another step than its peer
reports it and exits.
"""

import collections
import contextlib
import json
import os
import selectors
import sys
import threading
import time
import traceback
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

from engine import log
from engine.errors import UserError
from engine.workers import connections, messages
from engine.workers.cluster import ALONE, PEER_LOST_STATUS, Cluster
from engine.workers.sockets import Link

_BEATS = 10  # heartbeats in --heartbeat_timeout
_GRACE_SECONDS = 2.0  # for a worker to exit by itself after the error of another one
_END = "the end"  # the key of a worker's message that its work is done
_ADVICE = "start the same command, of the same version, on the same data everywhere"

Value = TypeVar("Value")


class Peers:
    """The other workers of a run. Made by `join`; NO_PEERS, where there are none.

    Attributes:
        cluster: all workers.
        is_chief: whether this worker is the one that writes.
        others: the numbers of the other workers.
    """

    def __init__(self, cluster: Cluster = ALONE, found: connections.Links = connections.NONE,
                 heartbeat_timeout: float = 0.0):
        self.cluster, self.is_chief = cluster, cluster.is_chief
        self.others = sorted(found.to)
        self._links = found
        self._timeout = heartbeat_timeout
        self._said: Dict[int, Deque[Tuple[str, Any]]] = collections.defaultdict(collections.deque)
        self._news = threading.Condition()
        self._heard = dict.fromkeys(found.to, time.monotonic())
        self._left: Dict[int, Mapping[str, Any]] = {}  # exit messages of workers
        self._closed: Dict[int, str] = {}  # errors of closed connections
        self._ending = threading.RLock()  # of the thread that ends the process; never released
        self._at_end: List[Callable[[], None]] = []
        if found.to:
            threading.Thread(target=self._watch, daemon=True).start()

    def say(self, key: str, value: Any, to: Optional[int] = None) -> None:
        """Sends a value, of JSON's types, to a worker, or to all others."""
        for index in self.others if to is None else [to]:
            with contextlib.suppress(OSError):  # `_take` notices it, too, and the process exits
                self._links.to[index].send({"key": messages.cut(key), "value": value})

    def hear(self, index: int, key: str) -> Any:
        """Waits for the next value from a worker; it must have this key.

        Raises:
            UserError: it has another key: the worker is at another step.
        """
        with self._news:
            said = self._said[index]
            # In short waits, because signals are handled between them.
            while not said:
                self._news.wait(0.1)
            sent_key, value = said.popleft()
        if sent_key != messages.cut(key):
            raise UserError(
                f"the workers do not do the same: {self.cluster.name(index)} is at {sent_key!r}, "
                f"{self.cluster.name(self.cluster.index)} at {key!r}; {_ADVICE}")
        return value

    def gather(self, key: str, value: Any) -> List[Any]:
        """All workers' values, by number; returns when all have called it."""
        self.say(key, value)
        return [value if index == self.cluster.index else self.hear(index, key)
                for index in range(len(self.cluster.addresses))]

    def wait(self, key: str) -> None:
        """Returns when all workers have called it."""
        self.gather(key, None)

    def from_chief(self, key: str, make: Callable[[], Value]) -> Value:
        """Broadcasts the chief's `make()`, a value of JSON's types, to every worker."""
        if not self.is_chief:
            return self.hear(0, key)
        value = make()
        self.say(key, value)
        return value

    def compare(self, what: str, facts: Mapping[str, Any]) -> None:
        """Raises a UserError that names the first difference if the workers' facts differ.

        Args:
            what: the subject of the facts, the same on all workers.
        """
        everyones = self.gather(what, json.loads(json.dumps(facts)))
        for index, theirs in enumerate(everyones):
            for name, one, other in _differences(what, everyones[0], theirs):
                raise UserError(
                    f"the workers differ in {name}: {self.cluster.name(0)} has {one}, "
                    f"{self.cluster.name(index)} {other}; {_ADVICE}")

    def open_port(self) -> None:
        """Frees this worker's port for TensorFlow's server, together with all others."""
        self.wait("port")
        for listener in self._links.listeners:
            listener.close()

    def at_end(self, action: Callable[[], None]) -> None:
        """Registers a call for the end of this worker, however it ends unless it is killed."""
        self._at_end.append(action)

    def leave(self, status: int, why: str = "") -> None:
        """Sends the others, if any, the exit message of this worker.

        After a status other than 0 they exit, too. After 0 this process exits at once: nobody
        monitors it any more, and TensorFlow's servers are slow to shut down.
        """
        if self.others:
            self._ending.acquire()
        for index in self.others:
            self._links.to[index].send_if_free(messages.last_words(status, why))
        while self._at_end:
            self._at_end.pop()()
        if self.others and not status:
            _exit(0)

    def wait_for_chief(self) -> None:
        """On all workers but the chief: exits when the chief has finished the command."""
        if self.is_chief:
            return
        self.say(_END, None, to=0)
        self.hear(0, _END)
        self.leave(0)

    def wait_for_notice(self) -> None:
        """After an error, waits until `_watch` has found the lost worker and exits."""
        time.sleep(self._timeout * (1 + 2 / _BEATS))

    def _watch(self) -> None:
        """Receives the others' messages, and exits when one of them is lost."""
        try:
            self._keep_watch()
        except Exception as error:  # a bug: a later loss would not be noticed
            traceback.print_exc()
            self._end(PEER_LOST_STATUS, "the other workers are not watched any more: "
                      f"{type(error).__name__}: {error}")

    def _keep_watch(self) -> None:
        interval, last_beat = self._timeout / _BEATS, 0.0
        with selectors.DefaultSelector() as selector:
            for group in (self._links.to, self._links.by):
                for index, link in group.items():
                    if not link.has_lines or self._take(index, link):
                        selector.register(link, selectors.EVENT_READ, index)
            while True:
                closed = {index: why for index, why in self._closed.items()
                          if index not in self._left}
                for key, _ in selector.select(0 if closed else interval):
                    if not self._take(key.data, key.fileobj):
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                if now - last_beat >= interval:
                    last_beat = now
                    for link in self._links.to.values():
                        link.send_if_free({})
                self._find_lost(closed, now)

    def _find_lost(self, closed: Mapping[int, str], now: float) -> None:
        """Ends the process if a worker is lost.

        Args:
            closed: errors of connections that closed before the others were last read; an exit
                message may have arrived on one of those.
        """
        for index in set(self.others) - set(self._left):
            if index in closed:
                self._lose(index, closed[index])
            elif now - self._heard[index] > self._timeout:
                self._lose(index, f"no heartbeat for {self._timeout:g} s")

    def _take(self, index: int, link: Link) -> bool:
        """Receives a worker's messages; returns whether its connection is still open."""
        try:
            received = link.receive(*messages.JOINED)
        except (OSError, ValueError) as error:
            self._closed.setdefault(index, str(error))
            return False
        self._heard[index] = time.monotonic()
        with self._news:
            for message in received:
                if "key" in message:
                    self._said[index].append((message["key"], message["value"]))
                elif "status" in message:
                    self._left[index] = message
                    if not message["status"]:
                        self._said[index].append((_END, None))
            self._news.notify_all()
        if self._left.get(index, {}).get("status"):
            self._follow(index)
        return True

    def _lose(self, index: int, why: str) -> None:
        self._end(PEER_LOST_STATUS, f"{self.cluster.name(index)} is lost: {why}; started again, "
                  "the same command goes on from the last checkpoint")

    def _follow(self, index: int) -> None:
        """Exits after the error of another worker."""
        time.sleep(_GRACE_SECONDS)
        status, why = self._left[index]["status"], self._left[index]["why"]
        self._end(status, why if status == PEER_LOST_STATUS else
                  f"{self.cluster.name(index)} has ended: {why}")

    def _end(self, status: int, line: str) -> None:
        if self._ending.acquire(blocking=False):
            try:
                self.leave(status, line)
            finally:
                sys.stderr.write(f"error: {log.visible(line)}\n")
                _exit(status)


def _exit(status: int) -> None:
    """Ends the process at once: its other threads may wait in TensorFlow for ever."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _differences(name: str, one: Any, other: Any, prefix: str = "") -> Iterator[Tuple[str, str, str]]:
    """The names of the values that differ, and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _differences(prefix + key, one.get(key), other.get(key), f"{prefix}{key}: ")
    elif one != other:
        yield name, log.brief(one), log.brief(other)


NO_PEERS = Peers()


def join(cluster: Cluster, peer_timeout: float, heartbeat_timeout: float) -> Peers:
    """Meets the other workers, if there are any. From here on this one ends if another is lost.

    Raises:
        UserError, PeerLost: see `connections.connect`.
    """
    if cluster == ALONE:
        return NO_PEERS
    log.info(f"This is {cluster.name(cluster.index)} of {len(cluster.addresses)}; waiting for the "
             "others")
    if not cluster.is_chief:
        log.quiet()
    return Peers(cluster, connections.connect(cluster, peer_timeout), heartbeat_timeout)

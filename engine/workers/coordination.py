"""Coordination with the other workers of a run: values, barriers, heartbeats.

TensorFlow waits for a lost worker for ever, in a call that nothing interrupts. So the chief and every
other worker send each other heartbeats. One that receives none for --heartbeat_timeout seconds, or
finds a connection closed, exits; the chief tells the others why.

Messages arrive in the order in which they were sent. A worker that is at another step than its peer
reports it and exits.
"""

import contextlib
import json
import os
import queue
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar

from engine import log
from engine.errors import UserError
from engine.workers import messages
from engine.workers.cluster import ALONE, PEER_LOST_STATUS, Cluster
from engine.workers.connections import Connections
from engine.workers.messages import Link, Message

_BEATS = 10  # heartbeats in --heartbeat_timeout
_GRACE_SECONDS = 2.0  # for a worker to exit by itself after the error of another one
_PART_CHARACTERS = 1 << 21  # of a value's JSON, in one message, which escapes its quotes
_END = "the end"  # the key of a worker's message that its work is done
_ADVICE = "start the same command, of the same version, on the same data everywhere"

Value = TypeVar("Value")


class Peers:
    """The other workers of a run; NO_PEERS, where there are none.

    Args:
        cluster: all workers.
        heartbeat_timeout: seconds without a heartbeat after which a worker counts as lost.

    Attributes:
        cluster: all workers.
        is_chief: whether this worker is the one that writes.
        others: the numbers of the other workers.
    """

    def __init__(self, cluster: Cluster = ALONE, heartbeat_timeout: float = 0.0):
        self.cluster, self.is_chief, self.others = cluster, cluster.is_chief, cluster.others
        self._connections = Connections(cluster, self._receive) if self.others else None
        self._timeout = heartbeat_timeout
        self._said: Dict[int, "queue.Queue[Tuple[str, Any]]"] = {index: queue.Queue() for index in self.others}
        self._silence = dict.fromkeys(self.others, 0)  # own heartbeats since a worker's last message
        self._left: Dict[int, Mapping[str, Any]] = {}  # exit messages of workers
        self._ending = threading.RLock()  # held by the thread that ends the process; never released
        self._at_end: List[Callable[[], None]] = []

    def meet(self, timeout: float) -> None:
        """Meets the other workers, if there are any. From here on this one ends if another is lost."""
        if not self.others:
            return
        log.info(f"This is {self.cluster.name(self.cluster.index)} of "
                 f"{len(self.cluster.addresses)}; waiting for the others")
        if not self.is_chief:
            log.quiet()
        threading.Thread(target=self._watch, daemon=True).start()
        self._connections.open(timeout)
        self.wait("all have met")

    def say(self, key: str, value: Any) -> None:
        """Sends a value, of JSON's types, to all workers that this one is connected with."""
        for _, link in self._links():
            with contextlib.suppress(OSError):  # `_receive` notices it, too, and the process exits
                link.send({"key": messages.cut(key), "value": value})

    def hear(self, index: int, key: str) -> Any:
        """Receives the next value from a worker. Raises a UserError if its key is another."""
        sent_key, value = self._said[index].get()
        if sent_key != messages.cut(key):
            raise UserError(
                f"the workers do not do the same: {self.cluster.name(index)} is at {sent_key!r}, "
                f"{self.cluster.name(self.cluster.index)} at {key!r}; {_ADVICE}")
        return value

    def gather(self, key: str, value: Any) -> List[Any]:
        """All workers' values, by number; returns when all have called it."""
        self.say(key, None if self.is_chief else value)
        if not self.is_chief:
            self.hear(0, key)  # the chief is at the same step
        return self.from_chief(key, lambda: [value, *(self.hear(index, key) for index in self.others)])

    def wait(self, key: str) -> None:
        """Returns when all workers have called it."""
        self.gather(key, None)

    def from_chief(self, key: str, make: Callable[[], Value]) -> Value:
        """Broadcasts the chief's `make()`, a value of JSON's types and any length, to every worker."""
        if not self.is_chief:
            return json.loads("".join(iter(lambda: self.hear(0, key), "")))
        value = make()
        text = json.dumps(value)
        for start in range(0, len(text), _PART_CHARACTERS):
            self.say(key, text[start:start + _PART_CHARACTERS])
        self.say(key, "")
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
        """Frees this worker's port for TensorFlow's server. All workers call it, and wait for each other."""
        self.wait("port")
        self._connections.close_port()

    def at_end(self, action: Callable[[], None]) -> None:
        """Registers a call for the end of this worker, whatever ends it except a kill."""
        self._at_end.append(action)

    def leave(self, status: int, why: str = "", worker: Optional[int] = None) -> None:
        """Tells the other workers that `worker`, by default this one, has ended, and why.

        After a status other than 0 they exit, too. After 0 this process exits at once: nobody
        monitors it any more, and TensorFlow's servers are slow to shut down.
        """
        if self.others:
            self._ending.acquire()
        for _, link in self._links():
            link.send_if_free({"worker": self.cluster.index if worker is None else worker,
                               "status": status, "why": messages.cut(why)})
        while self._at_end:
            self._at_end.pop()()
        if self.others and not status:
            _exit(0)

    def wait_for_chief(self) -> None:
        """On all workers but the chief: exits when the chief has finished the command."""
        if self.is_chief:
            return
        self.say(_END, None)
        self.hear(0, _END)
        self.leave(0)

    def wait_for_notice(self) -> None:
        """After an error, waits until the lost worker is noticed, which ends the process."""
        time.sleep(self._timeout * (1 + 2 / _BEATS))

    def _links(self) -> List[Tuple[int, Link]]:
        """The connections now, by the other worker's number."""
        return list(self._connections.links.items()) if self._connections else []

    def _watch(self) -> None:
        """Sends heartbeats, and ends the process when those of another worker are missing."""
        while True:
            for index, link in self._links():
                if index in self._left:
                    continue
                link.send_if_free({})
                self._silence[index] += 1
                if self._silence[index] > _BEATS:
                    self._lose(index, f"no heartbeat for {self._timeout:g} s")
            time.sleep(self._timeout / _BEATS)

    def _receive(self, index: int, link: Link) -> None:
        """Receives a worker's messages until the connection ends."""
        try:
            while index not in self._left:
                self._take(index, link.receive(*messages.JOINED))
        except (OSError, ValueError) as error:
            self._lose(index, str(error))

    def _take(self, index: int, message: Message) -> None:
        self._silence[index] = 0
        if "key" in message:
            self._said[index].put((message["key"], message["value"]))
        elif message:
            self._left[index] = message
            if message["status"]:
                self._follow(index, **message)
            else:
                self._said[index].put((_END, None))

    def _lose(self, index: int, why: str) -> None:
        why = (f"{self.cluster.name(index)} is lost: {why}; started again, the same command goes on "
               "from the last checkpoint")
        self._end(self.cluster.index, PEER_LOST_STATUS, why, why)

    def _follow(self, index: int, worker: int, status: int, why: str) -> None:
        """Exits because `worker` failed, as the worker `index` has reported."""
        worker = worker if worker in self.others else index
        time.sleep(_GRACE_SECONDS)
        self._end(worker, status, why, why if status == PEER_LOST_STATUS else
                  f"{self.cluster.name(worker)} has ended: {why}")

    def _end(self, worker: int, status: int, why: str, line: str) -> None:
        """Exits with a line because of what happened to a worker, which the others are told."""
        if self._ending.acquire(blocking=False):
            try:
                self.leave(status, why, worker)
            finally:
                _exit(status, f"error: {line}")


def _exit(status: int, line: str = "") -> None:
    """Ends the process at once: its other threads may wait in TensorFlow for ever."""
    try:
        log.last(line)
    finally:
        os._exit(status)


def _differences(name: str, one: Any, other: Any, prefix: str = "") -> Iterator[Tuple[str, str, str]]:
    """The names of the values that differ, and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _differences(prefix + key, one.get(key), other.get(key), f"{prefix}{key}: ")
    elif one != other:
        yield name, log.brief(one), log.brief(other)


NO_PEERS = Peers()

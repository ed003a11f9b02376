"""The other workers of a run: what they agree on, and notice of one that is lost.

TensorFlow waits for a lost worker for ever, in a call that nothing interrupts. So every worker
sends each other one a sign of life at intervals. Who hears none for --heartbeat_timeout seconds,
or finds a connection closed, ends its process and tells the others why.

A worker that is at another step than its peer reports it and exits: what one says, the others hear
in the same order.
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
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple, TypeVar

from engine import files, links, log, messages
from engine.errors import UserError
from engine.machines import ALONE, PEER_LOST_STATUS, Cluster
from engine.sockets import Link

_BEATS = 10  # signs of life in --heartbeat_timeout
_GRACE_SECONDS = 2.0  # for a worker to end by itself after another one has ended with an error
_MOST_UNHEARD = 1000  # messages of a worker; more would only fill the memory
_END = "the end"  # the key of what a worker says, or is heard to say, when it has done its work
_ADVICE = "start the same command, of the same version, on the same data everywhere"

Value = TypeVar("Value")


class Peers:
    """The other workers of this process's run; there are none unless `join` was called.

    Attributes:
        cluster: all workers.
    """

    def __init__(self, cluster: Cluster = ALONE, found: links.Links = links.NONE,
                 heartbeat_timeout: float = 0.0):
        self.cluster = cluster
        self._links = found
        self._timeout = heartbeat_timeout
        self._said: Dict[int, Deque[Tuple[str, Any]]] = collections.defaultdict(collections.deque)
        self._news = threading.Condition()
        self._heard = dict.fromkeys(found.to, time.monotonic())
        self._left: Dict[int, Mapping[str, Any]] = {}  # the last words of workers that have left
        self._closed: Dict[int, str] = {}  # who has closed a connection, and with which error
        self._ending = threading.RLock()  # of the thread that ends the process; never released
        self._at_end: List[Callable[[], None]] = []
        if found.to:
            threading.Thread(target=self._watch, daemon=True).start()

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the one that writes."""
        return self.cluster.is_chief

    @property
    def others(self) -> List[int]:
        """The numbers of the other workers."""
        return sorted(self._links.to)

    def say(self, key: str, value: Any, to: Optional[int] = None) -> None:
        """Sends a value, of JSON's types, to a worker, or to all others."""
        for index in self.others if to is None else [to]:
            self._send(index, {"key": messages.cut(key), "value": value})

    def hear(self, index: int, key: str) -> Any:
        """The next value that a worker has sent, or will send; of this key.

        Raises:
            UserError: the next one has another key: the worker does something else.
        """
        with self._news:
            said = self._said[index]
            # In short waits, because signals are handled between them.
            while not said:
                self._news.wait(0.1)
            found, value = said.popleft()
        if found != messages.cut(key):
            raise UserError(
                f"the workers do not do the same: {self.cluster.name(index)} is at {found!r}, "
                f"{self.cluster.name(self.cluster.index)} at {key!r}; {_ADVICE}")
        return value

    def gather(self, key: str, value: Any) -> List[Any]:
        """Each worker's value, by its number. Returns when all have called it."""
        self.say(key, value)
        return [value if index == self.cluster.index else self.hear(index, key)
                for index in range(len(self.cluster.addresses))]

    def wait(self, key: str) -> None:
        """Returns when all workers have called it."""
        self.gather(key, None)

    def from_chief(self, key: str, make: Callable[[], Value]) -> Value:
        """What `make` returns on the chief, on every worker; a value of JSON's types."""
        if not self.is_chief:
            return self.hear(0, key)
        value = make()
        self.say(key, value)
        return value

    def compare(self, what: str, facts: Mapping[str, Any]) -> None:
        """Raises a UserError that names the first difference if another worker has other facts.

        Args:
            what: what the facts are about; another worker that compares others does something else.
        """
        everyones = self.gather(what, json.loads(json.dumps(facts)))
        for index, theirs in enumerate(everyones):
            found = _difference(everyones[0], theirs)
            if found:
                raise UserError(
                    f"the workers differ in {found[0]}: {self.cluster.name(0)} has {found[1]}, "
                    f"{self.cluster.name(index)} {found[2]}; {_ADVICE}")

    def open_port(self) -> None:
        """Frees this worker's port for TensorFlow's server, when all others do the same."""
        self.wait("port")
        for listener in self._links.listeners:
            listener.close()

    def at_end(self, action: Callable[[], None]) -> None:
        """Has `action` called when this worker ends, however it does unless it is killed."""
        self._at_end.append(action)

    def leave(self, status: int, why: str = "") -> None:
        """Tells the others that this worker ends, with which exit status and why.

        After a status other than 0 they end, too.
        """
        if self.others:
            self._ending.acquire()
        for index in self.others:
            self._links.to[index].send_if_free(messages.last_words(status, why))
        self._clean()

    def finish(self) -> None:
        """Tells the others that this worker has done its work; ends the process if there are any.

        At once: nobody watches over this worker any more, and TensorFlow's servers take their time
        to shut down.
        """
        self.leave(0)
        if self.others:
            _exit(0)

    def wait_for_chief(self) -> None:
        """Ends this process when the chief has left: what remains is done there. Not on the chief.
        """
        if self.is_chief:
            return
        self.say(_END, None, to=0)
        self.hear(0, _END)
        self.finish()

    def wait_for_notice(self) -> None:
        """Gives `_watch` the time to find who is lost, and to end the process, after an error."""
        time.sleep(self._timeout * (1 + 2 / _BEATS))

    def _watch(self) -> None:
        """Takes what the others send, and ends the process when one of them is lost."""
        try:
            self._keep_watch()
        except Exception as error:  # a bug: a later loss would not be noticed
            traceback.print_exc()
            line = f"the other workers are not watched any more: {type(error).__name__}: {error}"
            with contextlib.suppress(Exception):
                self.leave(PEER_LOST_STATUS, line)
            sys.stderr.write(f"error: {log.visible(line)}\n")
            _exit(PEER_LOST_STATUS)

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
            closed: connections that were closed before the last look at the other ones, on which a
                worker that leaves may have said so.
        """
        for index in set(self.others) - set(self._left):
            if index in closed:
                self._lose(index, closed[index])
            elif now - self._heard[index] > self._timeout:
                self._lose(index, f"it gave no sign of life for {self._timeout:g} s")

    def _take(self, index: int, link: Link) -> bool:
        """Takes what a worker has sent; whether its connection is still open."""
        try:
            received = link.receive(*messages.JOINED)
            if len(self._said[index]) > _MOST_UNHEARD:
                raise ValueError(f"it has said {_MOST_UNHEARD} things that nothing waits for")
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
        """Ends this worker after another one has ended with an error."""
        time.sleep(_GRACE_SECONDS)
        status, why = self._left[index]["status"], self._left[index]["why"]
        self._end(status, why if status == PEER_LOST_STATUS else
                  f"{self.cluster.name(index)} has ended: {why}")

    def _end(self, status: int, line: str) -> None:
        if self._ending.acquire(blocking=False):
            self.leave(status, line)
            sys.stderr.write(f"error: {line}\n")
            _exit(status)

    def _send(self, index: int, message: Mapping[str, Any]) -> None:
        try:
            self._links.to[index].send(message)
        except OSError:
            pass  # `_take` finds it, too, and ends the process

    def _clean(self) -> None:
        while self._at_end:
            self._at_end.pop()()


def _exit(status: int) -> None:
    """Ends the process at once: its other threads may wait in TensorFlow for ever."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> Optional[Tuple[str, str, str]]:
    """The name of the first value in which two differ, and both values."""
    for name in {**one, **other}:
        value, others = one.get(name), other.get(name)
        if isinstance(value, dict) and isinstance(others, dict) and value != others:
            part, *values = _difference(value, others)
            return (f"{name}: {part}", *values)
        if value != others:
            return name, _brief(value), _brief(others)
    return None


def _brief(value: Any) -> str:
    text = log.visible(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


_current = Peers()


def current() -> Peers:
    """The other workers of this process's run."""
    return _current


def join(cluster: Cluster, peer_timeout: float, heartbeat_timeout: float) -> None:
    """Meets the other workers, if there are any. From here on this one ends if another is lost.

    Raises:
        UserError, PeerLost: see `links.connect`.
    """
    global _current
    if cluster == ALONE:
        return
    log.info(f"This is {cluster.name(cluster.index)} of {len(cluster.addresses)}; waiting for the "
             "others")
    files.set_worker(cluster.index)
    if not cluster.is_chief:
        log.quiet()
    _current = Peers(cluster, links.connect(cluster, peer_timeout), heartbeat_timeout)

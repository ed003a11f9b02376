"""Messages between workers, the connections that carry them, and the ports where workers listen.

A message is a line of JSON with the keys of one of the kinds below. `decode`, the only decoder
of network input, raises a ValueError for everything else, and the receiver closes the connection.
"""

import collections
import contextlib
import errno
import json
import socket
import threading
import time
from typing import Any, Deque, Dict, FrozenSet, List, Optional, Tuple

from engine import log

Message = Dict[str, Any]
Kind = FrozenSet[str]  # the keys

_LONGEST_GREETING = 1 << 12  # bytes of a message during the handshake
_LONGEST = 1 << 23  # bytes of a later message: parts of files are the longest
_LONGEST_TEXT = 1000  # characters of a text for people

_LOCK_SECONDS = 1.0
_READ_BYTES = 1 << 20
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # of a kind of addresses that this machine has not


def decode(line: bytes, *kinds: Kind) -> Message:
    """The message in a line. Raises a ValueError if it is of none of the kinds."""
    message = None
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(line.decode("utf-8"))
    if isinstance(message, dict) and set(message) in kinds:
        return message
    raise ValueError("it sent an invalid message")


def encode(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message).encode("utf-8") + b"\n"


def cut(text: str) -> str:
    """Escapes control characters in a text, and cuts it to _LONGEST_TEXT."""
    return log.visible(text[:_LONGEST_TEXT])[:_LONGEST_TEXT]


# The handshake: a worker says its number; the chief, and then the worker, answers with a heartbeat.
HELLO = frozenset(["from", "cluster"])
REFUSAL = frozenset(["refused"])

# After the handshake. The last words are the exit message of a worker, which the chief passes on.
HEARTBEAT: Kind = frozenset()
VALUE = frozenset(["key", "value"])
LAST_WORDS = frozenset(["worker", "status", "why"])
JOINED = (HEARTBEAT, VALUE, LAST_WORDS)


class Link:
    """A connection to another worker."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._lines: Deque[bytes] = collections.deque()  # received, not decoded
        self._rest = b""  # the beginning of an incomplete line
        self._longest = _LONGEST_GREETING
        self._lock = threading.Lock()  # held while sending

    def trust(self) -> None:
        """After the handshake: accepts long messages."""
        self._longest = _LONGEST

    def send(self, message: Message) -> None:
        """Sends a message. Raises an OSError if the connection is gone."""
        line = encode(message)
        with self._lock:
            self._socket.sendall(line)

    def send_if_free(self, message: Message) -> None:
        """Sends a short message or drops it: never waits for long, and raises nothing."""
        if self._lock.acquire(timeout=_LOCK_SECONDS):
            with contextlib.suppress(OSError):  # full; or closed, which the reader notices, too
                self._socket.send(encode(message), socket.MSG_DONTWAIT)
            self._lock.release()

    def receive(self, *kinds: Kind, deadline: Optional[float] = None) -> Message:
        """Waits for the next message.

        Args:
            kinds: those that it may be of.
            deadline: a time of `time.monotonic()`; None: none.

        Raises:
            OSError: the connection is gone, or the deadline has passed.
            ValueError: the message is of none of these kinds.
        """
        while not self._lines:
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                raise socket.timeout("no answer in time")
            self._socket.settimeout(seconds)
            self._read()
        return decode(self._lines.popleft(), *kinds)

    def close(self) -> None:
        """Closes the connection, also for a thread that waits for a message."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        read = self._socket.recv(min(self._longest, _READ_BYTES))
        if not read:
            raise ConnectionResetError("the connection was closed")
        *lines, self._rest = (self._rest + read).split(b"\n")
        self._lines.extend(lines)
        if len(self._rest) > self._longest:
            raise ValueError("it sent a line without an end")


def connect(address: str, seconds: float) -> Link:
    """Connects to a worker. Raises an OSError, or a ValueError for a malformed address."""
    connection = socket.create_connection(host_and_port(address), seconds)
    if connection.getsockname() == connection.getpeername():  # connected to itself
        connection.close()
        raise ConnectionRefusedError("nothing listens there")
    return Link(connection)


def host_and_port(address: str) -> Tuple[str, int]:
    """Splits the address of a worker, HOST:PORT; brackets around the host may go."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(port: int) -> List[socket.socket]:
    """Listens at a port on all interfaces, as TensorFlow's server does there later."""
    listeners = []
    with contextlib.ExitStack() as undo:
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((host, port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                continue
            listener.listen(socket.SOMAXCONN)
            listener.setblocking(False)
            listeners.append(listener)
        undo.pop_all()
    return listeners

"""Connections that carry messages between workers, and the ports where workers listen."""

import contextlib
import select
import socket
import threading
import time
from typing import List, Optional, Tuple

from engine.workers import messages
from engine.workers.messages import Kind, Message

_LOCK_SECONDS = 1.0
_READ_BYTES = 1 << 20


class Link:
    """A connection to another worker."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._lines: List[bytes] = []  # received, not decoded
        self._rest = b""  # the beginning of an incomplete line
        self._longest = messages.LONGEST_GREETING
        self._lock = threading.Lock()  # held while sending

    @property
    def has_lines(self) -> bool:
        """Whether lines are buffered, which a selector does not see."""
        return bool(self._lines)

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def trust(self) -> None:
        """After the handshake: accepts long messages and waits without a timeout."""
        self._longest = messages.LONGEST
        self._socket.settimeout(None)

    def send(self, message: Message) -> None:
        """Sends a message. Raises an OSError if the connection is gone."""
        line = messages.encode(message)
        with self._lock:
            self._socket.sendall(line)

    def send_if_free(self, message: Message) -> None:
        """Sends a short message or drops it: never waits for long, and raises nothing."""
        if self._lock.acquire(timeout=_LOCK_SECONDS):
            try:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if poll.poll(0):
                    self._socket.sendall(messages.encode(message))
            except (OSError, ValueError):
                pass  # closed, which the reader notices, too
            finally:
                self._lock.release()

    def receive(self, *kinds: Kind) -> List[Message]:
        """All complete messages received so far; waits if there are none.

        Raises:
            OSError: the connection is gone.
            ValueError: a message is of none of these kinds.
        """
        if not self._lines:
            self._read()
        lines, self._lines = self._lines, []
        return [messages.decode(line, *kinds) for line in lines]

    def receive_one(self, *kinds: Kind) -> Optional[Message]:
        """The first message, if it is complete after one read; raises like `receive`."""
        if not self._lines:
            self._read()
        return messages.decode(self._lines.pop(0), *kinds) if self._lines else None

    def wait_for(self, deadline: float, *kinds: Kind) -> Message:
        """Waits for the next message; raises like `receive`, and a timeout at the deadline."""
        message = None
        while message is None:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise socket.timeout("no answer in time")
            self._socket.settimeout(seconds)
            message = self.receive_one(*kinds)
        return message

    def is_closed(self) -> bool:
        """Whether the other side has closed the connection, and no data is left to read."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _read(self) -> None:
        read = self._socket.recv(min(self._longest, _READ_BYTES))
        if not read:
            raise ConnectionResetError("the connection was closed")
        *self._lines, self._rest = (self._rest + read).split(b"\n")
        if len(self._rest) > self._longest:
            raise ValueError("it sent a line without an end")


def connect(address: str, seconds: float) -> Link:
    """Connects to a worker. Raises an OSError, or a ValueError for a malformed address."""
    connection = socket.create_connection(_host_and_port(address), seconds)
    if connection.getsockname() == connection.getpeername():  # connected to itself
        connection.close()
        raise ConnectionRefusedError("nothing listens there")
    return Link(connection)


def accept(listener: socket.socket) -> Link:
    """Accepts a connection, without blocking reads. Raises an OSError if there is none."""
    connection, _ = listener.accept()
    connection.setblocking(False)
    return Link(connection)


def _host_and_port(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(address: str) -> List[socket.socket]:
    """Listens at a worker's address if it is this machine's own, else on all interfaces.

    In a container or behind a router, the address is not the machine's own. A name that resolves to
    the loopback interface here, as in Debian's set-up, resolves to a real one elsewhere.
    """
    host, port = _host_and_port(address)
    family = socket.AF_INET6 if _is_own(socket.AF_INET6, ("::", 0)) else socket.AF_INET
    return [_listener(*each) for each in _own_addresses(host, port) or [(family, ("", port))]]


def _own_addresses(host: str, port: int) -> List[Tuple]:
    """The family and address of each interface of this machine with this name."""
    addresses = set()
    with contextlib.suppress(socket.gaierror, UnicodeError):
        addresses = {(family, where) for family, _, _, _, where in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM)}
    is_loopback = any(where[0].startswith(("127.", "::1")) for _, where in addresses)
    if is_loopback and not (host.startswith("127.") or host in ("localhost", "::1")):
        return []
    return [each for each in sorted(addresses) if _is_own(*each)]


def _is_own(family: int, where: Tuple) -> bool:
    """Whether a socket can be bound to the address."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((where[0], 0, *where[2:]))
        return True
    return False


def _listener(family: int, where: Tuple) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if where[0] else 0)
        listener.bind(where)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener

"""HTTP connections: uvicorn's, with limits on how long and how much a client sends."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import re
import socket
from typing import Any, Callable, Iterator, Optional

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server

from engine import limits, log

_MOST_CONNECTIONS = 1000
_MOST_HEAD_BYTES = 65536  # of the request line and the headers
_POLL_SECONDS = 0.1
_TIMED_OUT = (b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
# Java's client offers HTTP/2 in this way. The parser would leave such a request without its body, and
# a server may pass the offer over.
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_NONE, _HEAD, _BODY = range(3)  # the part of a request that arrives
_warn_once = functools.lru_cache(maxsize=None)(log.warn)
_GRACE_SECONDS = 1.0  # after the signal, in which requests that are on their way are answered


def serve(app: Callable, listener: socket.socket, timeout: float, ends: Callable[[], bool]) -> None:
    """Answers requests until `ends()` is true, and then those that arrive within a second.

    From then on, answers tell clients to close their connections. Idle connections end after that
    second, since a request that is on its way would be lost with its connection.

    Args:
        app: an ASGI application.
        listener: a bound socket.
        timeout: seconds for a request to arrive, and for its answer to be read.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # clients' faults

    async def closing(scope: Any, receive: Callable, send: Callable) -> None:
        async def send_last(message: Any) -> None:
            if ends() and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            await app(scope, receive, send_last)
        finally:  # an answer is handed over, to be sent as the client reads it
            _connection.get().restart()

    server = _Server(Config(
        closing, http=_Connection, ws="none", lifespan="off", loop="asyncio", log_config=None,
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=timeout,
        timeout_graceful_shutdown=timeout, headers=[("x-content-type-options", "nosniff")]))
    asyncio.run(_serve(server, listener, ends))


def _say(loop: asyncio.AbstractEventLoop, context: Any) -> None:
    """Says what ran out in one line, and not for each client; asyncio tries again after a second."""
    line = limits.explained(context.get("exception") or Exception(context["message"]))
    if line:
        _warn_once(f"new clients wait for others to leave: {line}")
    else:
        loop.default_exception_handler(context)


async def _serve(server: Server, listener: socket.socket, ends: Callable[[], bool]) -> None:
    asyncio.get_event_loop().set_exception_handler(_say)
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not ends() and not running.done():
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.sleep(_GRACE_SECONDS)
    server.should_exit = True
    await running


class _Server(Server):
    """A server that leaves signals to the command; uvicorn calls the one method or the other, by its version."""

    def install_signal_handlers(self) -> None:
        """Installs none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


class _Connection(asyncio.Protocol):
    """Hands a connection to uvicorn, whose client has `timeout_keep_alive` seconds for a request, and for an answer.

    Uvicorn itself waits for ever for the rest of a request, and for an answer to be read. What arrives is
    parsed here, too, to know where requests begin and end.
    """

    _open = 0

    def __init__(self, config: Config, **named: Any):
        self._uvicorn = HttpToolsProtocol(config=config, **named)
        self._parser = HttpRequestParser(self)
        self._timeout = config.timeout_keep_alive
        self._timer: Optional[asyncio.TimerHandle] = None
        self._head_bytes = 0
        self._part = _NONE
        self.pause_writing = self._uvicorn.pause_writing
        self.resume_writing = self._uvicorn.resume_writing
        self.eof_received = self._uvicorn.eof_received

    def connection_made(self, transport: asyncio.Transport) -> None:
        _Connection._open += 1
        self._transport = transport
        self._uvicorn.connection_made(transport)
        self.restart()
        if _Connection._open > _MOST_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        _Connection._open -= 1
        self._stop()
        self._uvicorn.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._part != _BODY:
            self._head_bytes += len(data)
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\r\nx-upgrade:", head) + end + rest
        with contextlib.suppress(HttpParserError, HttpParserUpgrade):  # which uvicorn answers
            self._parser.feed_data(data)
        if self._part != _BODY and self._head_bytes > _MOST_HEAD_BYTES:
            self._transport.abort()
            return
        _connection.set(self)  # of the tasks that uvicorn starts
        self._uvicorn.data_received(data)

    def on_message_begin(self) -> None:
        """A request begins to arrive."""
        self._part = _HEAD
        self.restart()

    def on_headers_complete(self) -> None:
        """The application will be called."""
        self._part, self._head_bytes = _BODY, 0

    def on_message_complete(self) -> None:
        """A request has arrived."""
        self._part = _NONE
        self._stop()

    def restart(self) -> None:
        """The client has the whole time from now on."""
        self._stop()
        if not self._transport.is_closing():
            self._timer = asyncio.get_event_loop().call_later(self._timeout, self._time_out)

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        if self._transport.get_write_buffer_size():  # an answer that nobody reads
            self._transport.abort()
        elif not self._transport.is_closing():
            if self._part != _NONE:
                self._transport.write(_TIMED_OUT)
            self._transport.close()


_connection: "contextvars.ContextVar[_Connection]" = contextvars.ContextVar("connection")

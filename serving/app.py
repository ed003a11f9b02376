"""The routes of the service, as an ASGI application."""

import asyncio
import base64
import hashlib
import hmac
import os
import re
import time
import traceback
from concurrent import futures
from typing import (
    Any, Awaitable, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence)
from urllib import parse

from engine import log
from engine.errors import UserError
from engine.version import VERSION
from runs.capability import AnyResult
from serving import formats, metrics, openapi
from serving.formats import Refusal
from serving.limits import Limits
from serving.model import Closing, Deadline, Late, Overloaded, ServedModel, TooLong

JSON = "application/json"
_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
_MODELS = "/models/"  # before the name of a model
_OPEN = ("", "/", "/health")  # need no token
_GETS = ("", "/", "/health", "/info", "/metrics", "/openapi.json")
_RETRY = {"retry-after": "1"}  # seconds
_ADDRESS = re.compile(r"[\d.]*|\[.*\]")  # IPv4 or IPv6, or nothing: no name
_DRAINED = 8  # times the largest body: what is read of a larger one, so that its sender hears why


class Response(NamedTuple):
    """What is sent."""
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class _Target(NamedTuple):
    """What a path names."""
    model: ServedModel
    route: str
    is_named: bool  # the path has the model's name


class _Gone(Exception):
    """The client has closed the connection."""


class App:
    """Answers requests to some models.

    Args:
        models: by name; the first one answers the routes without a name.
        token: of all requests but those to the page and /health; None: none is needed.
        origins: of the other sites' pages that may call the service.
        is_local: only programs of this machine reach the service. Without a token it then answers to
            addresses, "localhost" and the names of `origins` alone. Else a page of any site could
            ask it, by giving the site's name this machine's address.
    """

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits,
                 token: Optional[bytes] = None, origins: Sequence[str] = (), is_local: bool = False):
        self._models, self._limits, self._token, self._origins = models, limits, token, origins
        self._first = next(iter(models.values()))
        self._names = None if token or not is_local else {
            "localhost", *(parse.urlsplit(origin).hostname for origin in origins)}
        self._metrics = metrics.Metrics(models, lambda: self._in_flight)
        self._workers = futures.ThreadPoolExecutor(limits.max_concurrent_requests)
        self._in_flight = 0
        self._page = _page_response()

    async def __call__(self, scope: Dict[str, Any], receive: Callable[[], Awaitable],
                       send: Callable[[Dict[str, Any]], Awaitable]) -> None:
        """Answers a request; see the specification of ASGI."""
        headers = dict(scope["headers"])
        try:
            response = await self._respond(scope, headers, receive)
        except Refusal as refusal:
            response = _refused(refusal)
        except _Gone:
            return
        except Exception:  # a bug of ours: the service goes on
            log.warn(f"no answer to {scope['path']!r}: {traceback.format_exc()}")
            response = _refused(Refusal(500, formats.BACKEND, "internal error"))
        sent = {"content-type": response.content_type, "content-length": str(len(response.body)),
                "x-content-type-options": "nosniff", **response.headers,
                **self._cors(headers.get(b"origin", b""))}
        await send({"type": "http.response.start", "status": response.status, "headers": [
            (name.encode("ascii"), value.encode("latin-1")) for name, value in sent.items()]})
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, scope: Dict[str, Any], headers: Dict[bytes, bytes],
                       receive: Callable[[], Awaitable]) -> Response:
        method = scope["method"]
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        try:
            target = self._target(scope["path"])
        except Refusal:  # it has the names of the models
            self._check_token(headers)
            raise
        if method == "POST" and target.route in ("", "/"):
            target = target._replace(route=formats.main_route(target.model))
        if method == "OPTIONS" and self._cors(headers.get(b"origin", b"")):
            return Response(204, JSON, b"")
        if target.route not in _OPEN:
            self._check_token(headers)
        if target.route in _GETS:
            _check_method(method, "GET", "HEAD")
            return self._get(target)
        if target.route not in formats.READERS:
            raise Refusal(404, formats.VALIDATION, "there is no such route; see /openapi.json")
        _check_method(method, "POST")
        # A page of another site can send texts and forms without asking, and JSON it cannot.
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != JSON.encode("ascii"):
            raise Refusal(415, formats.VALIDATION, f"send the header Content-Type: {JSON}")
        body = await self._read(headers, receive)
        return await self._answer_in_thread(target, body, receive)

    def _target(self, path: str) -> _Target:
        if not path.startswith(_MODELS):
            return _Target(self._first, path, False)
        name, slash, rest = path[len(_MODELS):].partition("/")
        if name not in self._models:
            raise Refusal(404, formats.VALIDATION,
                          f"there is no such model; those served are {', '.join(self._models)}")
        return _Target(self._models[name], slash + rest, True)

    def _check_host(self, host: str) -> None:
        name = re.sub(r":\d*$", "", host.lower())
        if self._names is not None and name not in self._names and not _ADDRESS.fullmatch(name):
            raise Refusal(403, formats.VALIDATION, "the service listens for this machine alone: "
                          "--allowed_origin names sites that may call it, --token_file who may")

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if self._token is not None and not (
                scheme.lower() == b"bearer" and hmac.compare_digest(given, self._token)):
            raise Refusal(401, formats.VALIDATION, "send the header Authorization: Bearer TOKEN",
                          **{"www-authenticate": "Bearer"})

    def _cors(self, origin: bytes) -> Dict[str, str]:
        shown = origin.decode("latin-1")
        if shown not in self._origins:
            return {}
        return {"access-control-allow-origin": shown, "vary": "origin",
                "access-control-allow-methods": "GET, POST",
                "access-control-allow-headers": "authorization, content-type"}

    def _get(self, target: _Target) -> Response:
        if not target.route:  # the page's addresses are relative to the model's, with its slash
            return Response(308, JSON, b"", {"location": f"{target.model.name}/"})
        if target.route == "/":
            return self._page
        if target.route == "/metrics":
            return Response(200, metrics.CONTENT_TYPE, self._metrics.page())
        body: Any = {}
        if target.route == "/info":
            body = self._info(target.model)
        if target.route == "/openapi.json":
            body = openapi.description(list(self._models))
        return Response(200, JSON, formats.to_json(body))

    def _info(self, model: ServedModel) -> Dict[str, Any]:
        """What Text Embeddings Inference says of its model, and what the page needs to know."""
        description = model.description
        labels = dict(enumerate(description.get("labels", [])))
        kind = "embedding" if formats.gives_vectors(model) else (
            "classifier" if labels else description.get("kind", "classifier"))
        facts = {"id2label": {str(number): label for number, label in labels.items()},
                 "label2id": {label: number for number, label in labels.items()}} if labels else {}
        limits = self._limits
        return {
            "model_id": model.name, "model_sha": model.sha, "model_dtype": model.devices.dtype.name,
            "model_type": {kind: {"pooling": description.get("pooling", "mean")}
                           if kind == "embedding" else facts},
            "max_concurrent_requests": limits.max_concurrent_requests,
            "max_input_length": model.max_seq_length, "max_batch_tokens": model.max_batch_tokens,
            "max_batch_requests": None, "max_client_batch_size": limits.max_client_batch_size,
            "auto_truncate": False, "tokenization_workers": limits.max_concurrent_requests,
            "version": VERSION, "models": list(self._models), "kind": description.get("kind"),
            "takes_pairs": model.reader.takes_pairs, "columns": list(model.reader.columns),
            "routes": formats.routes_of(model), "card": model.card}

    async def _read(self, headers: Mapping[bytes, bytes],
                    receive: Callable[[], Awaitable]) -> bytes:
        """The body. How long its sender may take, the connection knows."""
        limit, parts, size = self._limits.max_body_bytes, [], 0
        announced = headers.get(b"content-length", b"0")
        is_over = len(announced) > 18 or int(announced) > limit
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            size += len(message.get("body", b""))
            is_over = is_over or size > limit
            if is_over:
                parts = []
            else:
                parts.append(message.get("body", b""))
            if not message.get("more_body") or size > _DRAINED * limit:
                break
        if is_over:
            raise Refusal(413, formats.VALIDATION, f"the body has more than {limit} bytes",
                          connection="close")
        return b"".join(parts)

    async def _answer_in_thread(self, target: _Target, body: bytes,
                                receive: Callable[[], Awaitable]) -> Response:
        """The answer. `receive` returns when the client goes; its request is then taken out of the queue."""
        if self._in_flight >= self._limits.max_concurrent_requests:
            self._metrics.count(target.model.name, target.route, 429, 0.0, 0)
            raise _overloaded()
        self._in_flight += 1
        deadline = Deadline(self._limits.timeout)
        answering = asyncio.get_event_loop().run_in_executor(
            self._workers, self._answer, target, body, deadline)
        going = asyncio.ensure_future(receive())
        try:
            await asyncio.wait([answering, going], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                deadline.end()
            return await answering
        finally:
            going.cancel()
            self._in_flight -= 1

    def _answer(self, target: _Target, body: bytes, deadline: Deadline) -> Response:
        start, num_texts = time.monotonic(), 0
        try:
            asked = formats.read_object(body)
            target = self._chosen(target, asked)
            question = formats.READERS[target.route](asked, target.model)
            results = self._predict(target.model, question, deadline)
            response = Response(200, JSON, formats.to_json(question.answer(formats.entries_of(results))))
            num_texts = len(results)
        except Refusal as refusal:
            response = _refused(refusal, target.route)
        self._metrics.count(target.model.name, target.route, response.status,
                            time.monotonic() - start, num_texts)
        return response

    def _chosen(self, target: _Target, asked: Mapping[str, Any]) -> _Target:
        """OpenAI's clients name the model in the body."""
        name = asked.get("model")
        if target.is_named or target.route != "/v1/embeddings" or not isinstance(name, str):
            return target
        return target._replace(model=self._models.get(name, target.model))

    def _predict(self, model: ServedModel, question: formats.Question, deadline: Deadline
                 ) -> List[AnyResult]:
        limit, count = self._limits.max_client_batch_size, len(question.examples)
        if count > limit:
            raise Refusal(413, formats.VALIDATION,
                          f"batch size {count} > maximum allowed batch size {limit}")
        try:
            return model.answer(question.examples, truncate=question.truncate, deadline=deadline)
        except TooLong as error:
            raise Refusal(413, formats.VALIDATION, f"{error}; \"truncate\": true cuts it",
                          error.index) from None
        except Overloaded:
            raise _overloaded() from None
        except Closing:
            raise Refusal(503, formats.UNHEALTHY, "the service ends", **_RETRY) from None
        except Late:
            raise Refusal(504, formats.TIMEOUT, "the answer took longer than --timeout") from None
        except UserError as error:
            raise Refusal(424, formats.BACKEND, str(error)) from None
        except Exception as error:  # TensorFlow's, such as a lack of memory
            log.warn(f"{model.name}: {type(error).__name__}: {error}")
            raise Refusal(424, formats.BACKEND, "inference failed") from None


def _overloaded() -> Refusal:
    return Refusal(429, formats.OVERLOADED, "Model is overloaded", **_RETRY)


def _check_method(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise Refusal(405, formats.VALIDATION, f"the route takes {' and '.join(allowed)}",
                      allow=", ".join(allowed))


def _refused(refusal: Refusal, route: str = "") -> Response:
    body = refusal.body()
    if route.startswith("/v1/"):
        body = {"message": body["error"], "code": refusal.status, "type": refusal.error_type}
    return Response(refusal.status, JSON, formats.to_json(body), refusal.headers)


def _page_response() -> Response:
    """The page, which may run its own code and style alone, and talk to this service alone."""
    with open(_PAGE, "rb") as file:
        page = file.read()
    policy = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'",
              "form-action 'none'", "frame-ancestors 'none'"]
    for element in (b"script", b"style"):
        hashes = [base64.b64encode(hashlib.sha256(part).digest()).decode("ascii")
                  for part in re.findall(b"<%s>(.*?)</%s>" % (element, element), page, re.DOTALL)]
        sources = " ".join(f"'sha256-{each}'" for each in hashes)
        policy.append(f"{element.decode()}-src {sources}")
    return Response(200, "text/html; charset=utf-8", page, {
        "content-security-policy": "; ".join(policy), "referrer-policy": "no-referrer",
        "cache-control": "no-cache"})

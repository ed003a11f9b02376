"""The service as an ASGI application: who may ask, what a request may take, and the routes."""

import asyncio
import base64
import functools
import hashlib
import hmac
import os
import re
import time
import traceback
from concurrent import futures
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence
from urllib import parse

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine import log
from engine.errors import UserError
from engine.version import VERSION
from runs.capability import Result
from runs.rows import Example
from serving import metrics, openapi, routes
from serving.model import Closing, Deadline, Gone, Late, Limits, Overloaded, ServedModel, TooLong
from serving.routes import Refusal

_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
_ADDRESS = re.compile(r"[\d.]*|\[.*\]")  # IPv4 or IPv6, or nothing: no name
_DRAINED = 64  # times the largest body: what is read of a larger one, so that its sender hears why
_SOON = 0.05  # seconds, in which a client hardly leaves
_SHORT = 512  # bytes of a body with about a hundred tokens, for which other clients can wait
_RETRY = {"retry-after": "1"}  # seconds
_REFUSALS = {Overloaded: (429, "Model is overloaded", routes.OVERLOADED),
             Closing: (503, "the service ends", routes.UNHEALTHY),
             Late: (504, "the answer took longer than --timeout", routes.TIMEOUT),
             Gone: (499, "the client has gone", routes.TIMEOUT)}


class App(Starlette):
    """Answers requests to some models.

    Args:
        models: by name; the first one that has a route answers it without a name.
        token: of all requests but those to the page and /health; None: none is needed.
        origins: of the other sites' pages that may call the service.
        is_local: only programs of this machine reach the service. Without a token it then answers
            to addresses, "localhost" and the names of `origins` alone. Else a page of any site
            could ask it, by giving the site's name this machine's address.
    """

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits,
                 token: Optional[bytes] = None, origins: Sequence[str] = (),
                 is_local: bool = False):
        self._models, self._limits, self._token = models, limits, token
        self._hosts = None if token or not is_local else {
            "localhost", *(parse.urlsplit(origin).hostname for origin in origins)}
        self._prefixes = ["", *(f"/models/{name}" for name in models)]
        self._open = {prefix + path for prefix in self._prefixes
                      for path in ("", "/", "/health", "/ping")}
        self._first, self._in_flight, self._client = next(iter(models)), 0, None
        self._metrics = metrics.Metrics(models, lambda: self._in_flight)
        self._workers = futures.ThreadPoolExecutor(limits.max_concurrent_requests)
        self._page = _page_response()
        self._gets = {"/health": self._health, "/ping": self._health, "/info": self._info,
                      "/v1/models": self._list, "/metrics": self._show_metrics,
                      "/openapi.json": self._openapi}
        super().__init__(
            routes=self._routes("") + self._routes("/models/{name}"),
            exception_handlers={
                HTTPException: _refuse, ClientDisconnect: _ignore, Exception: _fail},
            middleware=[
                *([Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"],
                              allow_headers=["authorization", "content-type"])] if origins else []),
                Middleware(self._guarded)])
        self.router.redirect_slashes = False

    def _routes(self, prefix: str) -> List[Route]:
        posts = [*routes.REQUESTS, "/"]
        gets = {**self._gets, "/": lambda model: self._page, "/v1/models/{id}": self._retrieve}
        if prefix:  # the page's addresses are relative to the model's, with its slash
            posts, gets[""] = [*posts, ""], lambda model: RedirectResponse(f"{model.name}/", 308)
        return [*(Route(prefix + path, functools.partial(self._post, path), methods=["POST"])
                  for path in posts),
                *(Route(prefix + path, functools.partial(self._get, answer))
                  for path, answer in gets.items())]

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            headers, called = Headers(scope=scope), app
            host = re.sub(r":\d*$", "", headers.get("host", "").lower())
            scheme, _, token = headers.get("authorization", "").encode("latin-1").partition(b" ")
            if len(headers.getlist("host")) != 1 and scope["http_version"] != "1.0":
                called = _error(Refusal(400, "send the header Host, once"), scope["path"])
            elif self._hosts is not None and host not in self._hosts and not _ADDRESS.fullmatch(host):
                called = _error(Refusal(
                    403, "the service listens for this machine alone: --allowed_origin names sites "
                    "that may call it, --token_file who may"), scope["path"])
            elif self._token is not None and not (
                    scheme.lower() == b"bearer" and hmac.compare_digest(token, self._token)
                    or scope["path"] in self._open and scope["method"] != "POST"):
                called = _error(Refusal(401, "send the header Authorization: Bearer TOKEN",
                                        **{"www-authenticate": "Bearer"}), scope["path"])
            await called(scope, receive, send)

        return call

    def _first_with(self, path: str) -> str:
        """The first model that has a route; the first of all, if none has it or the route is of all models."""
        fits = routes.REQUESTS[path].fits if path in routes.REQUESTS else (lambda model: True)
        return next((name for name, model in self._models.items() if fits(model)), self._first)

    def _model(self, name: str) -> ServedModel:
        if name not in self._models:
            raise Refusal(404, "there is no such model; those served are "
                          f"{', '.join(self._models)}")
        return self._models[name]

    async def _get(self, answer: Callable[[ServedModel], Response], request: Request) -> Response:
        named = request.path_params
        return answer(self._model(named.get("id", named.get("name", self._first))))

    def _health(self, model: ServedModel) -> Response:
        """Answers once the models are open."""
        return JSONResponse({})

    def _list(self, model: ServedModel) -> Response:
        """The models, as OpenAI's clients expect them."""
        return JSONResponse({"object": "list", "data": list(map(_openai_model, self._models))})

    def _retrieve(self, model: ServedModel) -> Response:
        """A model, as OpenAI's clients expect it."""
        return JSONResponse(_openai_model(model.name))

    def _show_metrics(self, model: ServedModel) -> Response:
        """Metrics for Prometheus."""
        return Response(self._metrics.page(), headers={"content-type": metrics.CONTENT_TYPE})

    def _openapi(self, model: ServedModel) -> Response:
        """This description."""
        return JSONResponse(openapi.description_of(self._prefixes, self._gets))

    def _info(self, model: ServedModel) -> Response:
        """The model and the limits, as Text Embeddings Inference and the page need them."""
        description, limits = model.description, self._limits
        labels, ranks = description.get("labels", []), routes.RerankRequest.fits(model)
        kind, facts = description.get("kind", "classifier"), {}
        if routes.EmbedRequest.fits(model):
            kind, facts = "embedding", {"pooling": description.get("pooling", "mean")}
        elif labels or ranks:
            kind = "reranker" if ranks else "classifier"
            facts = {"id2label": {str(index): label for index, label in enumerate(labels)},
                     "label2id": {label: index for index, label in enumerate(labels)}}
        return JSONResponse({
            "model_id": model.name, "served_model_name": model.name, "model_sha": model.sha,
            "model_dtype": model.dtype, "model_type": {kind: facts},
            "max_concurrent_requests": limits.max_concurrent_requests,
            "max_input_length": model.max_seq_length, "max_batch_tokens": model.max_batch_tokens,
            "max_batch_requests": None, "max_client_batch_size": limits.max_client_batch_size,
            "auto_truncate": False, "tokenization_workers": limits.max_concurrent_requests,
            "version": VERSION, "models": list(self._models), "kind": description.get("kind"),
            "takes_pairs": model.reader.takes.pairs, "texts": model.reader.takes._asdict(),
            "does": model.reader.does, "columns": list(model.reader.columns),
            "routes": [route for route, request in routes.REQUESTS.items() if request.fits(model)],
            "card": model.card})

    async def _post(self, path: str, request: Request) -> Response:
        """The answer of a model. Once the client has gone, nothing more is computed.

        A thread computes it, so that the event loop stays free. Handing it over takes half a millisecond of a processor,
        which a client who asks alone is spared: if its connection also sent the request before, nothing else is in
        flight and the body is short, the event loop computes.
        """
        limits, name = self._limits, request.path_params.get("name") or self._first_with(path)
        model = self._model(name)
        # A page of another site can send texts and forms without asking, and JSON it cannot.
        content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if content_type != "application/json":
            raise Refusal(415, "send the header Content-Type: application/json")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "send the body as it is, without Content-Encoding")
        body = await self._read(request)
        if self._in_flight >= limits.max_concurrent_requests:
            self._metrics.count(model.name, routes.route_of(path, model), 429, 0.0, 0)
            raise Refusal(*_REFUSALS[Overloaded], **_RETRY)
        asks_again = request.client is not None and request.client == self._client
        self._client = request.client
        self._in_flight += 1
        deadline = Deadline(limits.timeout)
        answer = functools.partial(self._answer, model, path, body, deadline, "name" in request.path_params)
        try:
            if asks_again and self._in_flight == 1 and len(body) <= _SHORT and model.batcher.is_idle():
                return answer()
            try:
                answering = asyncio.get_event_loop().run_in_executor(self._workers, answer)
            except RuntimeError as error:  # no thread can be started
                deadline.end()  # it stays in the queue: no later thread waits for its answer
                raise Refusal(*_REFUSALS[Overloaded], **_RETRY) from error
            if not (await asyncio.wait([answering], timeout=_SOON))[0]:
                leaving = asyncio.ensure_future(request.receive())
                try:
                    await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    leaving.cancel()
                if not answering.done():
                    deadline.end()
            return await answering
        finally:
            self._in_flight -= 1

    async def _read(self, request: Request) -> bytes:
        """The body. How long its sender may take, the connection knows."""
        limit, body, size = self._limits.max_body_bytes, bytearray(), 0
        async for part in request.stream():
            size += len(part)
            if size <= limit:
                body += part
            elif size > _DRAINED * limit:
                break
        if size > limit:
            raise Refusal(413, f"the body has more than {limit} bytes", connection="close")
        return bytes(body)

    def _answer(self, model: ServedModel, path: str, body: bytes, deadline: Deadline,
                is_named: bool) -> Response:
        start, status, num_texts = time.monotonic(), 500, 0
        route = routes.route_of(path, model)

        def predict(examples: List[Example], truncate: Optional[bool]) -> List[Result]:
            nonlocal num_texts
            results = self._predict(model, examples, bool(truncate), deadline, request.is_split)
            num_texts = len(results)
            return results

        try:
            if not is_named and len(self._models) > 1:  # clients may name it in the body
                model = self._model(routes.Body.read(body).model or model.name)
                route = routes.route_of(path, model)
            kind = routes.REQUESTS[route]
            if not kind.fits(model):
                raise Refusal(424, f"model is not {kind.needs}; see /predict", routes.BACKEND)
            request = kind.read(body)
            answer = request.answer(model, predict)
            try:
                response = JSONResponse(answer)
            except ValueError:
                raise Refusal(424, "the model computes a score that is not a number",
                              routes.BACKEND) from None
            status = 200
            return response
        except Refusal as refusal:
            status = refusal.status_code
            raise
        finally:
            self._metrics.count(model.name, route, status, time.monotonic() - start, num_texts)

    def _predict(self, model: ServedModel, examples: List[Example], truncate: bool,
                 deadline: Deadline, is_split: bool) -> List[Result]:
        limit, results = self._limits.max_client_batch_size, []
        if len(examples) > limit and not is_split:
            raise Refusal(
                413, f"batch size {len(examples)} > maximum allowed batch size {limit}")
        try:
            while len(results) < len(examples):
                part = examples[len(results):len(results) + limit]
                results += model.answer(part, truncate=truncate, deadline=deadline)
        except TooLong as error:
            raise Refusal(413, f"{error}; \"truncate\": true cuts it",
                          index=len(results) + error.index) from None
        except tuple(_REFUSALS) as error:
            raise Refusal(*_REFUSALS[type(error)], **_RETRY) from None
        except UserError as error:
            raise Refusal(424, str(error), routes.BACKEND) from None
        except Exception as error:  # TensorFlow's, such as a lack of memory
            log.warn(f"{model.name}: {type(error).__name__}: {error}")
            raise Refusal(424, "inference failed", routes.BACKEND) from None
        for index, result in enumerate(results):
            if isinstance(result, str):
                raise Refusal(422, result, routes.UNREAD, index)
        return results


def _openai_model(name: str) -> Dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "this service"}


def _error(refusal: Refusal, path: str) -> Response:
    body = {"error": refusal.detail, "error_type": refusal.error_type}
    if refusal.index is not None:
        body["index"] = refusal.index
    if path.endswith("/embeddings") or "/v1/" in path:  # OpenAI's
        body = {"message": refusal.detail, "code": refusal.status_code, "type": refusal.error_type}
    return JSONResponse(body, refusal.status_code, refusal.headers)


async def _refuse(request: Request, error: HTTPException) -> Response:
    if not isinstance(error, Refusal):  # Starlette's
        error = Refusal(error.status_code, f"{error.detail}; see /openapi.json",
                        **(error.headers or {}))
    return _error(error, request.scope["path"])


async def _ignore(request: Request, error: ClientDisconnect) -> Response:
    return Response()


async def _fail(request: Request, error: Exception) -> Response:
    """Logs a bug of ours; the service goes on."""
    lines = traceback.format_exception(None, error, error.__traceback__)
    log.warn(f"no answer to {request.scope['path']!r}: {''.join(lines)}")
    return _error(Refusal(500, "internal error", routes.BACKEND), request.scope["path"])


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
    return Response(page, media_type="text/html", headers={
        "content-security-policy": "; ".join(policy), "referrer-policy": "no-referrer",
        "cache-control": "no-cache"})

"""Asks a service for its answers to all texts of a file, and writes them in the order of the texts.

  python -m serving.client --url=http://127.0.0.1:8501 --input_file=texts.tsv --output_file=answers.jsonl
"""

import collections
import contextlib
import http.client
import itertools
import json
import threading
import time
from concurrent import futures
from typing import Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple
from urllib import parse

from absl import flags

from engine import log
from engine.cli import command, shards
from engine.data.chunks import in_chunks
from engine.data.odd_rows import OddRows
from engine.disk import files, resumable_file
from engine.disk.provenance import Source
from engine.errors import UserError
from engine.progress import Counter, counted
from engine.settings import required
from runs import columns
from runs.rows import UNREAD, Example, read_split
from serving import formats
from serving.run import read_token

USAGE = """Asks a service (serving.run) for its answers to all texts of a file, many at a time:

  python -m serving.client --url=http://127.0.0.1:8501 --input_file=texts.tsv --output_file=answers.jsonl

Input files are .tsv, .txt (tab-separated), .csv or .jsonl. The output has a line for each text, in the
order of the input: the JSON that /predict answers, or {"error": why}. Once the service has answered, the
client waits while it is overloaded or away; it ends if the model is replaced. The same command goes on where
an interrupted one has stopped."""

_TEXTS_OF_REQUEST = 32
_REQUESTS = 8  # at a time
_TEXTS_OF_CHUNK = 512  # written, and recorded as done, at a time
_PATIENCE_SECONDS = 300.0  # without an answer to anything
_ANSWER_SECONDS = 120.0  # for one request
_LONGEST_WAIT = 60.0  # seconds, whatever Retry-After says
_LONGEST_BACKOFF = 5.0  # seconds, where it says nothing
_FIRST_TRIES = 3  # to find the service at all
# The service is overloaded, ends, or is late; or a balancer before it says so.
_TRY_AGAIN = (429, 502, 503, 504)
_FACTS = {"takes_pairs", "model_id", "model_sha", "max_client_batch_size"}  # of /info


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name, text in (
            ("url", "Address of the service, such as http://127.0.0.1:8501; of one of several models, "
             "http://127.0.0.1:8501/models/NAME."),
            ("input_file", "File of texts."),
            ("output_file", "File for the answers, .jsonl."),
            ("text_column", "The column of the text: its name, or its number from 1; detected by default."),
            ("text_pair_column", "The column of the second text; detected by default."),
            ("token_file", "File with the secret of a service that has one.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool("header", None, "Whether the first line of --input_file names the columns; detected "
                      "by default.", flag_values=values)
    flags.DEFINE_bool("truncate", False, "Cut texts that are too long for the model, instead of an error in "
                      "their lines.", flag_values=values)
    shards.define_skip_flag(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Streams the file through the service."""
    path = files.require_file(required(values, "input_file"), "--input_file")
    output = required(values, "output_file")
    files.check_output(output, "--output_file", [path])
    service = Service(required(values, "url"), read_token(values.token_file) if values.token_file else None)
    odd = OddRows("have no answer", keeps_reasons=True, skips_lines=shards.skips_lines(values))
    info = service.info()
    table = columns.read_head(path, values.header)
    roles = columns.find(table, columns.Roles(values.text_column, values.text_pair_column),
                         labelled=False, takes_pairs=info["takes_pairs"])
    examples = read_split(columns.split_of(table, roles), "", odd=odd)
    facts = {"model": [info["model_id"], info["model_sha"]], "input": Source(path),
             "--truncate": values.truncate, "columns": roles._asdict()}
    with resumable_file.opened(output, facts, "", "texts") as (num_done, append), \
            Counter("Asking", unit="texts") as counter:
        texts = (_Text(example, odd.reasons.popleft() if example is UNREAD else "")
                 for example in examples)
        requests = in_chunks(itertools.islice(texts, num_done, None),
                             min(_TEXTS_OF_REQUEST, info["max_client_batch_size"]))
        with contextlib.closing(_in_order(service, requests, values.truncate)) as answers:
            for chunk in in_chunks(answers, _TEXTS_OF_CHUNK):
                append("".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in chunk), len(chunk))
                counter.advance(len(chunk))
                num_done += len(chunk)
    odd.report(num_done, may_be_all=True)
    service.refused.report(num_done, may_be_all=True)


class _Text(NamedTuple):
    example: Example
    error: str  # why its row cannot be read, or ""


class _Refused(Exception):
    """The service refuses a request, whenever it is sent."""

    def __init__(self, status: int, body: Dict[str, Any]):
        super().__init__(log.visible(str(body.get("error") or body.get("message") or f"status {status}")))
        self.status, self.index = status, body.get("index")


class Service:
    """A service, asked over one connection for each thread.

    Attributes:
        refused: the texts that it refuses.

    Args:
        url: its address, or that of one of its models.
        token: its secret, if it has one.

    Raises:
        UserError: this is no such address.
    """

    def __init__(self, url: str, token: Optional[bytes] = None):
        self._url, self._own = url, threading.local()
        self.refused = OddRows("are refused by the service")
        try:
            url.encode("ascii")
            parts = parse.urlsplit(url)
            self._connect = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[parts.scheme]
            self._host, self._port = parts.hostname or "", parts.port
        except (KeyError, ValueError) as error:
            raise self._error("must be like http://127.0.0.1:8501") from error
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token.decode('ascii')}"
        self._sha: Optional[str] = None  # of the model that is asked
        self._last_answer = time.monotonic()
        self._ended = threading.Event()

    def info(self) -> Dict[str, Any]:
        """What the service says of its model; raises a UserError."""
        try:
            info = self._ask("GET", "/info")
        except _Refused as error:
            hint = "; --token_file names the file with the secret" if error.status == 401 else ""
            raise self._error(f"{error}{hint}") from error
        if not isinstance(info, dict) or not _FACTS <= set(info):
            raise self._error("is no service of serving.run: its /info says nothing of the texts")
        self._sha = info["model_sha"]
        return info

    def answers(self, texts: List[_Text], truncate: bool) -> List[Any]:
        """The answer to each text, or {"error": why}: one that is refused costs no other its own."""
        found: List[Any] = [{"error": text.error} if text.error else None for text in texts]
        places = [place for place, text in enumerate(texts) if not text.error]
        while places:
            asked = [[text for text in texts[place].example[:2] if text is not None] for place in places]
            try:
                answers = self._ask("POST", "/predict", {"inputs": asked, "truncate": truncate})
            except _Refused as error:
                at_fault = error.index if isinstance(error.index, int) else None
                if error.status == 413 and at_fault is None and len(places) > 1:  # too many bytes
                    half = places[len(places) // 2]
                    return self.answers(texts[:half], truncate) + self.answers(texts[half:], truncate)
                if len(places) == 1:
                    at_fault = 0
                if error.status not in (400, 413, 422) or at_fault not in range(len(places)):
                    raise self._error(str(error)) from error
                self.refused.add(error)
                found[places.pop(at_fault)] = {"error": str(error)}
                continue
            if not isinstance(answers, list) or len(answers) != len(places):
                raise self._error(f"gave no {counted(len(places), 'answers')}")
            for place, answer in zip(places, answers):
                found[place] = answer
            break
        return found

    def end(self) -> None:
        """Makes the calls that wait for the service give up."""
        self._ended.set()

    def _ask(self, method: str, route: str, body: Any = None) -> Any:
        """The answer, as JSON; waits while the service is overloaded or away."""
        sent = None if body is None else json.dumps(body).encode("utf-8")
        turn, status, answer = 0, 0, b""
        while status in (0, *_TRY_AGAIN):
            wait = min(_LONGEST_BACKOFF, 0.1 * 2 ** turn)
            try:
                status, headers, answer = self._exchange(method, route, sent)
                reason, wait = f"answers with status {status}", _seconds(headers.get("Retry-After"), wait)
            except (OSError, http.client.HTTPException) as error:
                status, reason = 0, f"cannot be reached ({log.brief(error) or type(error).__name__})"
            if status == 200 and route != "/info" and headers.get(formats.SHA_HEADER, self._sha) != self._sha:
                raise self._error("the model was replaced while it was asked; name another --output_file, so "
                                  "that all answers are of one model")
            if status in (0, *_TRY_AGAIN):
                turn += 1
                if time.monotonic() - self._last_answer > _PATIENCE_SECONDS or (
                        route == "/info" and turn > _FIRST_TRIES):
                    raise self._error(reason)
                if self._ended.wait(min(_LONGEST_WAIT, wait)):
                    raise self._error("the command ends")
        self._last_answer = time.monotonic()
        return self._parsed(status, answer)

    def _exchange(self, method: str, route: str, body: Optional[bytes]) -> Tuple[int, Any, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect(self._host, self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, self._path + route, body, self._headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        except BaseException:
            connection.close()  # the next request opens it again
            raise

    def _parsed(self, status: int, answer: bytes) -> Any:
        try:
            body = json.loads(answer.decode("utf-8"))
        except ValueError:
            body = {}
            if status == 200:
                raise self._error("answers with something else than JSON") from None
        if status != 200:
            raise _Refused(status, body if isinstance(body, dict) else {})
        return body

    def _error(self, what: str) -> UserError:
        return UserError(f"--url={self._url}: {what}")


def _in_order(service: Service, requests: Iterable[List[_Text]], truncate: bool) -> Iterator[Any]:
    """The answers to all texts, with some requests at a time."""
    waiting: Deque["futures.Future[List[Any]]"] = collections.deque()
    with futures.ThreadPoolExecutor(_REQUESTS) as threads:
        try:
            for texts in requests:
                waiting.append(threads.submit(service.answers, texts, truncate))
                if len(waiting) > 2 * _REQUESTS:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            service.end()
            for future in waiting:
                future.cancel()


def _seconds(header: Optional[str], otherwise: float) -> float:
    """The seconds of Retry-After; `otherwise` without, or if it is a date."""
    return float(header) if header and header.isdecimal() else otherwise


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

"""What clients do wrong, and too much of: an error for each, and the service goes on."""

import asyncio
import concurrent.futures
import gzip
import json
import math
import random
import signal
import socket
import struct
import threading
import time
import types

import pytest
from starlette.responses import Response

from conftest import sentences
from serving import app, model
from serving.routes import REQUESTS
from services import RELEASE, SECONDS, Answer, Service, read_all, request, wait_until

SOON = 4.0  # seconds of the services that wait for slow clients


@pytest.fixture(scope="module")
def service():
    service = Service({"classifier": f"{RELEASE}/classifier", "tagger": f"{RELEASE}/tagger"},
                      max_body_bytes=20000, max_client_batch_size=16)
    yield service
    assert service.stop() == 0
    assert "Traceback" not in "".join(service.lines)


@pytest.fixture(scope="module")
def impatient():
    """A service that waits for clients for a short time."""
    service = Service({"classifier": f"{RELEASE}/classifier"}, timeout=SOON)
    yield service
    assert service.stop() == 0
    assert "Traceback" not in "".join(service.lines)


def assert_answers(service):
    assert service.post("/predict", {"inputs": "the cat"}).status == 200


NESTED = b"[" * 5000
BAD = [  # bodies, and a part of what is said of them
    (b"", "Invalid JSON"), (b"inputs=a", "Invalid JSON"), (b'{"inputs": "a"}}', "trailing characters"),
    (b"[]", "the body: "), (b"null", "the body: "), (b"{}", "`inputs`: Field required"),
    (b'{"Inputs": "a"}', "`Inputs` is no field of this route"), (b'{"inputs": null}', "`inputs`: "),
    (b'{"inputs": 1.5}', "`inputs`: Input should be a valid string, not 1.5"),
    (b'{"inputs": {"__init__": 1}}', "`inputs`: "), (b'{"inputs": []}', "`inputs`: "),
    (b'{"inputs": [[]]}', "`inputs`: "), (b'{"inputs": [[[]]]}', "`inputs`: "),
    (b'{"inputs": ["a", ["b"]]}', 'not ["b"]'), (b'{"inputs": [["a"], "b"]}', 'not "b"'),
    (b'{"inputs": ["a", "b", "c"]}', "takes single texts"), (b'{"inputs": [["a", "b", "c"]]}', "takes single texts"),
    (b'{"inputs": ["a", null]}', "not null"), (b'{"inputs": "a", "truncate": 1}', "`truncate`: "),
    (b'{"inputs": "a", "truncate": "true"}', "`truncate`: Input should be a valid boolean, not \"true\""),
    (b'{"inputs": "a", "truncate": NaN}', "`truncate`: "), (b'{"inputs": "\xff"}', "unicode"),
    (b'\xff\xfe{\x00}\x00', "Invalid JSON"), (b'{"inputs": "\\ud800"}', "Invalid JSON"),
    (b'\xef\xbb\xbf{"inputs": "a"}', "Invalid JSON"), (b'{"inputs": ' + NESTED + b"}", "recursion"),
    (b'{"inputs": "a", "n": %s}' % (b"9" * 15000), "out of range")]
# These are read, if strangely.
ODD = [b'{"inputs": ""}', b'{"inputs": "\\u0000"}', b'{"inputs": [""]}', b'{"inputs": "a", "options": NaN}',
       b'{"inputs": "%s%n{0}{inputs.__class__}"}', b'{"inputs": "../../etc/passwd"}',
       b'{"inputs": "a", "options": 1e999}', b'{"inputs": "a", "inputs": "b"}',
       '{"inputs": "\u202eabc 中文 \U0001f600"}'.encode()]


@pytest.mark.parametrize("route", ["/predict", "/models/tagger/predict"])
def test_bad_bodies_get_an_error_of_the_client(route, service):
    for body, part in BAD:
        answer = service.post(route, body)
        assert answer.status in (400, 422), body
        assert set(answer.body) <= {"error", "error_type", "index"} and part in answer.body["error"], body
    for body in ODD:
        assert service.post(route, body).status == 200, body


def test_mutated_bodies_get_no_internal_error(service):
    draw = random.Random(37)
    seeds = [body for body, _ in BAD if len(body) < 100] + ODD + [
        b'{"query": "a", "texts": ["b"]}', b'{"ids": [[1], [2]]}',
        b'{"input": ["a"], "encoding_format": "base64", "dimensions": 3}',
        b'{"inputs": {"source_sentence": "a", "sentences": ["b"]}}']
    for _ in range(500):
        body = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 6)):
            place, piece = draw.randint(0, len(body)), draw.choice(seeds)[:draw.randint(0, 9)]
            body[place:place + draw.randint(0, 3)] = draw.choice([piece, bytes([draw.randrange(256)])])
        answer = service.post(draw.choice(["/models/tagger/predict", *REQUESTS]), bytes(body))
        assert answer.status in (200, 400, 404, 413, 422, 424), bytes(body)
    assert_answers(service)


def test_routes_methods_and_types_of_content_that_are_not_served(service):
    assert service.post("/nothing", {}).status == 404
    assert service.post("/models/%2e%2e/predict", {}).status == 404
    assert service.post("/models/\u007bx\u007d/predict", {}).status == 404
    assert service.get("/models/tagger/../../page.html").status == 404
    for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"):
        answer = service.get("/predict", method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert service.post("/info", {}).status == 405
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert service.post("/predict", {"inputs": "a"}, content_type=kind).status == 415
    assert service.post("/predict", {"inputs": "a"}, content_encoding="identity").status == 200
    answer = service.post("/predict", gzip.compress(b'{"inputs": "a"}'), content_encoding="gzip")
    assert answer.status == 415 and "Content-Encoding" in answer.body["error"]


def test_a_request_has_one_host(service):
    for version, hosts, status in ((b"1.1", b"Host: localhost\r\nHost: other.example\r\n", b"400"), (b"1.1", b"", b"400"),
                                   (b"1.1", b"Host: localhost\r\n", b"200"), (b"1.0", b"", b"200")):
        answer = service.raw(b"GET /health HTTP/%s\r\n%sConnection: close\r\n\r\n" % (version, hosts))
        assert answer.split()[1] == status, (version, hosts)


def test_a_body_that_is_too_large_is_refused_and_its_sender_hears_why(service):
    for size in (20001, 1200000):  # 60 times as much as may be sent
        answer = service.post("/predict", b" " * size)
        assert (answer.status, answer.body["error_type"]) == (413, "validation")
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = service.raw(head + b"Transfer-Encoding: chunked\r\n\r\n"
                         + b"2710\r\n%s\r\n" % (b" " * 10000) * 3 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    answer = service.raw(head + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")) or not answer


def test_a_batch_of_too_many_texts_is_refused(service):
    inputs = [["a"]] * 17
    answer = service.post("/predict", {"inputs": inputs})
    assert answer.status == 413 and answer.body["error"] == (
        "batch size 17 > maximum allowed batch size 16")
    assert service.post("/predict", {"inputs": inputs[:16]}).status == 200


def test_clients_that_go_away_in_the_middle_harm_nobody(service):
    content = json.dumps({"inputs": [["the cat"]] * 16}).encode()
    whole = request(b"/predict", content)
    for number in range(60):
        client = service.socket()
        client.sendall(whole[:len(whole) - number % 3 * 40])
        if number % 2:  # a reset instead of an end
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert_answers(service)
    wait_until(lambda: "serving_requests_in_flight 0.0" in service.get("/metrics").body)


def test_an_answer_that_nobody_reads_is_dropped(impatient):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", impatient.port))
        content = json.dumps({"inputs": [["the cat"]] * 256}).encode()
        for _ in range(400):  # as many as the buffers of the system do not take
            client.settimeout(SOON / 4)
            try:
                client.sendall(request(b"/predict", content))
            except OSError:
                break
        assert_answers(impatient)
        client.settimeout(SECONDS)
        time.sleep(SOON + 2)
        answers = read_all(client)
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert_answers(impatient)


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again():
    with Service({"classifier": f"{RELEASE}/classifier"}, max_queued_tokens=64,
                 max_batch_tokens=32, max_concurrent_requests=8) as service:
        bodies = [{"inputs": [[text] for text in sentences(50, seed)], "truncate": True}
                  for seed in range(40)]
        expected = {}
        for seed in range(0, 40, 13):
            expected[seed] = service.post("/predict", bodies[seed]).body
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda body: service.post("/predict", body), bodies))
        assert {answer.status for answer in answers} == {200, 429}
        for seed, answer in enumerate(answers):
            if answer.status == 429:
                assert answer.headers["retry-after"] == "1"
                assert answer.body == {"error": "Model is overloaded", "error_type": "overloaded"}
            elif seed in expected:
                assert [[each["label"] for each in one] for one in answer.body] == [
                    [each["label"] for each in one] for one in expected[seed]]
        assert 'status="429"' in service.get("/metrics").body
        assert_answers(service)


def test_an_answer_that_takes_too_long_is_504_and_what_a_client_that_has_gone_has_asked_is_not_computed():
    empty, body = 'serving_queued_tokens{model="classifier"} 0.0', {"inputs": [["the cat"]] * 50000}
    # As many steps as texts: no machine computes them in the time, and any machine tokenizes them.
    with Service({"classifier": f"{RELEASE}/classifier"}, timeout=5, max_batch_tokens=8,
                 max_client_batch_size=50000) as service:
        with service.socket() as client:
            client.sendall(request(b"/predict", json.dumps(body).encode()))
            wait_until(lambda: empty not in service.get("/metrics").body)
        wait_until(lambda: "serving_requests_in_flight 0.0" in service.get("/metrics").body)
        metrics = service.get("/metrics").body
        assert empty in metrics and 'route="/predict",status="499"} 1.0' in metrics
        assert 'status="504"' not in metrics
        answer = service.post("/predict", body)
        assert (answer.status, answer.body["error_type"]) == (504, "timeout")
        wait_until(lambda: empty in service.get("/metrics").body)
        assert_answers(service)


def test_clients_that_keep_their_connections_lose_no_answer_to_a_signal():
    begun, told = threading.Semaphore(0), []

    def ask_until_told_to_close(service):
        """The statuses, over a connection that is kept as long as the service keeps it."""
        connection, statuses = service.connect(), []
        while True:
            sent = math.inf
            try:
                connection.request("POST", "/predict", b'{"inputs": "the cat"}', {
                    "content-type": "application/json"})
                sent = time.monotonic()
                answer = connection.getresponse()
            except ConnectionError:  # this process was held up: the service answers for a second
                assert min(sent, time.monotonic()) > told[0] + 1.0
                return statuses
            answer.read()
            statuses.append(answer.status)
            begun.release()
            if answer.headers["connection"] == "close":
                return statuses
            time.sleep(0.5)  # most connections are idle when the signal comes

    with Service({"classifier": f"{RELEASE}/classifier"}) as service:
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            clients = [pool.submit(ask_until_told_to_close, service) for _ in range(32)]
            for _ in range(64):
                assert begun.acquire(timeout=SECONDS)
            told.append(time.monotonic())
            service.process.send_signal(signal.SIGTERM)
            for client in clients:
                assert set(client.result(SECONDS)) <= {200, 503}
        assert service.process.wait(SECONDS) == 0


def test_a_client_who_asks_again_over_its_connection_gets_what_others_get(service):
    bodies = [{"inputs": text} for text in sentences(8)] + [{"inputs": 1.5}, {"inputs": ["a", "b", "c"]}]
    connection, answers = service.connect(), []
    for body in bodies:
        connection.request("POST", "/predict", json.dumps(body), {"content-type": "application/json"})
        answer = Answer(connection.getresponse())
        answers.append((answer.status, answer.body))
    connection.close()
    alone = [service.post("/predict", body) for body in bodies]
    assert answers == [(answer.status, answer.body) for answer in alone]
    wait_until(lambda: "serving_requests_in_flight 0.0" in service.get("/metrics").body)


def test_a_signal_under_load_ends_the_service_when_what_has_begun_is_answered():
    service = Service({"classifier": f"{RELEASE}/classifier"}, max_batch_tokens=32,
                      max_queued_tokens=1000000)
    content = json.dumps({"inputs": [[text] for text in sentences(200)], "truncate": True}).encode()
    expected = service.post("/predict", content).body
    clients = [service.socket() for _ in range(30)]
    for client in clients:
        client.sendall(request(b"/predict", content))
    wait_until(lambda: "serving_requests_in_flight 0.0" not in service.get("/metrics").body)
    service.process.send_signal(signal.SIGINT)
    answered = 0
    for client in clients:
        with client:
            head, _, body = read_all(client).partition(b"\r\n\r\n")
        if head:
            assert head.startswith(b"HTTP/1.1 200 ")
            assert [[each["label"] for each in one] for one in json.loads(body)] == [
                [each["label"] for each in one] for one in expected]
            answered += 1
    assert answered == 30
    assert service.process.wait(SECONDS) == 0
    with pytest.raises(ConnectionRefusedError):
        service.socket()
    assert "Traceback" not in "".join(service.lines)


def test_a_shortage_of_threads_refuses_a_request_and_is_over_with_it(monkeypatch, capsys):
    application = app.App({"a": types.SimpleNamespace(name="a", batcher=None)}, model.Limits(max_concurrent_requests=1))
    deadlines = []
    monkeypatch.setattr(application, "_answer", lambda *given: deadlines.append(given[3]) or Response())

    def status():
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"{}"}

        async def send(message):
            sent.append(message)

        asyncio.run(application({
            "type": "http", "http_version": "1.0", "method": "POST", "path": "/models/a/predict", "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")]}, receive, send))
        return sent[0]["status"]

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(
            RuntimeError("can't start new thread")))
        assert [status(), status()] == [429, 429]
    assert status() == 200 and application._in_flight == 0 and "Traceback" not in capsys.readouterr().err
    for deadline in deadlines[:2]:  # the refused requests, which stood in the queue
        with pytest.raises(model.Gone):
            deadline.check()
    deadlines[2].check()

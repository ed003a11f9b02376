"""The client of the service: all texts of a file, in order, over any interruption."""

import json
import signal
import threading
from http import server

import pytest

import processes
from commands import ends_with_error, run_here
from conftest import ROOT, on_tensorflow_1, on_tensorflow_2, sentences
from serving import client
from services import Service, toy_models, wait_until


@pytest.fixture(scope="module")
def models(tiny_model, tmp_path_factory):
    return toy_models(tmp_path_factory.mktemp("models"), tiny_model)


@pytest.fixture(scope="module")
def service(models):
    service = Service({name: models[name] for name in ("classifier", "pairs")})
    yield service
    service.kill()


def write(folder, texts):
    (folder / "texts.tsv").write_text("".join(f"{text}\n" for text in texts))
    return dict(input_file=folder / "texts.tsv", header=False, output_file=folder / "out.jsonl")


def lines(folder):
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_each_text_has_its_answer_in_its_line(service, tmp_path, capfd):
    texts = sentences(700, seed=1)
    texts[3], texts[90] = "cat " * 60, "dog " * 60
    run_here(dict(write(tmp_path, texts), url=f"http://127.0.0.1:{service.port}"), client)
    found = lines(tmp_path)
    assert len(found) == 700
    for place in (3, 90):
        assert "reads at most 24" in found[place]["error"]
    answer = service.post("/predict", {"inputs": [["a"]]})
    assert answer.headers["x-model-sha"] == service.get("/info").body["model_sha"] != ""
    assert "2 of 700 are refused by the service; the first: the text has " in capfd.readouterr().err
    for place in (0, 4, 89, 699):
        expected, = service.post("/predict", {"inputs": [[texts[place]]]}).body
        assert [score["label"] for score in found[place]] == [score["label"] for score in expected]
        assert [score["score"] for score in found[place]] == pytest.approx(
            [score["score"] for score in expected], abs=1e-5)


def test_pairs_go_to_the_model_of_a_name_and_long_texts_are_cut(service, tmp_path):
    texts = [f"{text}\t{text}" for text in sentences(40, seed=2)] + ["cat " * 60 + "\tdog"]
    run_here(dict(write(tmp_path, texts), truncate=True,
                  url=f"http://127.0.0.1:{service.port}/models/pairs/"), client)
    assert all(len(answer) == 2 for answer in lines(tmp_path)) and len(lines(tmp_path)) == 41


class Doubtful(server.BaseHTTPRequestHandler):
    """A service that is overloaded every other time, and cuts connections; one token is too much."""

    turn = 0
    asked = []  # the first text of each request
    replaced_at = 10**9  # the number that the new model answers first
    stops = threading.Event()  # the service is away

    def do_GET(self):
        self.respond(200, {"model_id": "m", "model_sha": "old", "takes_pairs": False,
                           "max_client_batch_size": 4})

    def do_POST(self):
        inputs = json.loads(self.rfile.read(int(self.headers["content-length"])).decode())["inputs"]
        kind = type(self)
        kind.turn += 1
        if kind.stops.is_set() or kind.turn % 3 == 0:
            self.respond(503, {"error": "away"}, retry_after="1" if kind.stops.is_set() else "0")
        elif kind.turn % 7 == 0:
            self.close_connection = True  # without an answer
        elif ["bad"] in inputs:
            self.respond(422, {"error": "bad", "index": inputs.index(["bad"])})
        else:
            kind.asked.append(inputs[0][0])
            self.respond(200, [{"value": int(text)} for text, in inputs],
                         sha="new" if int(inputs[-1][0]) >= kind.replaced_at else "old")

    def respond(self, status, body, retry_after=None, sha="old"):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("X-Model-Sha", sha)
        self.send_header("Content-Length", str(len(content)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def doubtful():
    Doubtful.turn, Doubtful.asked, Doubtful.replaced_at = 0, [], 10**9
    Doubtful.stops.clear()
    with server.ThreadingHTTPServer(("127.0.0.1", 0), Doubtful) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_a_service_that_is_overloaded_or_cuts_connections_is_asked_again(doubtful, tmp_path):
    texts = [str(number) for number in range(150)]
    texts[5] = texts[149] = "bad"
    run_here(dict(write(tmp_path, texts), url=doubtful), client)
    assert lines(tmp_path) == [{"error": "bad"} if text == "bad" else {"value": int(text)}
                               for text in texts]


def test_a_bad_line_ends_the_command_or_has_an_error(doubtful, tmp_path, capsys):
    flags = dict(write(tmp_path, range(20)), url=doubtful)
    text = flags["input_file"].read_bytes().replace(b"7", b"\xff")
    flags["input_file"].write_bytes(text)
    with ends_with_error(capsys, "texts.tsv, line 8: not UTF-8"):
        run_here(flags, client)
    run_here(dict(flags, skip_bad_lines=True), client)
    found = lines(tmp_path)
    for place in (7, 17):
        assert f"line {place + 1}: not UTF-8" in found[place]["error"]
        found[place] = {"value": place}
    assert found == [{"value": number} for number in range(20)]


@on_tensorflow_2
def test_the_same_command_goes_on_where_an_interrupted_one_has_stopped(doubtful, tmp_path):
    flags = dict(write(tmp_path, map(str, range(2000))), url=doubtful)
    process = processes.start(["-m", "serving.client", *(
        f"--{name}={value}" for name, value in flags.items())], cwd=ROOT)
    wait_until(lambda: (tmp_path / "out.jsonl.json").exists())
    Doubtful.stops.set()
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait(60) and "Traceback" not in said and "texts are done" in said
    done = json.loads((tmp_path / "out.jsonl.json").read_text())["rows"]
    assert 0 < done < 2000
    Doubtful.stops.clear()
    Doubtful.asked.clear()
    run_here(flags, client)
    assert lines(tmp_path) == [{"value": number} for number in range(2000)]
    assert min(map(int, Doubtful.asked)) == done


@on_tensorflow_1
def test_no_output_has_answers_of_two_models(doubtful, tmp_path, capsys):
    Doubtful.replaced_at = 1000
    with ends_with_error(capsys, "the model was replaced while it was asked; name another --output_file"):
        run_here(dict(write(tmp_path, map(str, range(2000))), url=doubtful), client)
    assert not (tmp_path / "out.jsonl").exists()
    assert json.loads((tmp_path / "out.jsonl.json").read_text())["rows"] <= 1000


@pytest.mark.parametrize("url, said", [
    ("ftp://x", "must be like http://127.0.0.1:8501"), ("http://127.0.0.1:x", "must be like"),
    ("http://127.0.0.1:1", "cannot be reached"), ("http://127.0.0.1:1/ä", "must be like")])
def test_a_wrong_address_is_one_line(url, said, tmp_path, capsys):
    with ends_with_error(capsys, f"--url={url}", said):
        run_here(dict(write(tmp_path, ["a"]), url=url), client)


def test_a_model_that_is_not_there_is_one_line(service, tmp_path, capsys):
    with ends_with_error(capsys, "there is no such model", "classifier, pairs"):
        run_here(dict(write(tmp_path, ["a"]),
                      url=f"http://127.0.0.1:{service.port}/models/other"), client)


def test_a_service_with_a_secret_is_told_it(models, tmp_path, capsys):
    (tmp_path / "token").write_text("secret\n")
    flags = write(tmp_path, ["the cat"])
    service = Service({"classifier": models["classifier"]}, token_file=tmp_path / "token")
    try:
        flags["url"] = f"http://127.0.0.1:{service.port}"
        with ends_with_error(capsys, "--token_file names the file"):
            run_here(flags, client)
        run_here(dict(flags, token_file=tmp_path / "token"), client)
        assert len(lines(tmp_path)) == 1
    finally:
        service.kill()

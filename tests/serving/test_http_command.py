"""The command's flags: models, tokens, other sites, and what is wrong with them."""

import shutil
import socket

import pytest

from commands import ends_with_error, run_here
from engine.errors import UserError
from serving import run
from services import RELEASE, Service

CLASSIFIER = f"{RELEASE}/classifier"


def test_a_token_is_needed_for_all_but_health_and_the_page(tmp_path):
    (tmp_path / "token").write_text("s3cret-unlikely\n")
    with Service({"a": CLASSIFIER}, token_file=tmp_path / "token",
                 allowed_origin="https://example.org") as service:
        right = {"authorization": "Bearer s3cret-unlikely"}
        for path in ("/info", "/metrics", "/openapi.json", "/models/a/info", "/models/b/info",
                     "/nothing"):
            for given in ("", "Bearer wrong", "s3cret-unlikely", "Bearer s3cret-unlikely2",
                          "Basic czNjcmV0", "Bearer \xff"):
                answer = service.get(path, **({"authorization": given} if given else {}))
                assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
                assert "s3cret" not in str(answer.body)
        assert service.post("/predict", {"inputs": "a"}).status == 401
        assert service.post("/", {"inputs": "a"}).status == 401
        assert service.post("/predict", {"inputs": "a"}, host="x", **right).status == 200  # whatever its name
        assert service.get("/info", **right).status == 200
        assert service.get("/health").status == 200

        theirs, others = ({"origin": origin, "access-control-request-method": "POST"} for origin in (
            "https://example.org", "https://example.com"))
        answer = service.get("/predict", method="OPTIONS", **theirs)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert service.post("/predict", {"inputs": "a"}, **right, **theirs).headers[
            "access-control-allow-origin"] == "https://example.org"
        for answer in (service.get("/predict", method="OPTIONS", **others),
                       service.post("/predict", {"inputs": "a"}, **right, **others)):
            assert answer.headers["access-control-allow-origin"] is None
        assert service.get("/predict", method="OPTIONS", **others).status == 400


def test_only_names_that_are_this_machine_s_own_reach_a_service_without_a_token():
    with Service({"a": CLASSIFIER}, allowed_origin="https://named.example") as service:
        for host, status in {"127.0.0.1:8501": 200, "LOCALHOST": 200, "[::1]:80": 200, "named.example:1": 200,
                             "rebound.example:8501": 403, "127.0.0.1.example": 403, "localhost.example": 403}.items():
            answer = service.post("/predict", {"inputs": "a"}, host=host)
            assert answer.status == status, host
            assert status == 200 or "--allowed_origin" in answer.body["error"]
    with Service({"a": CLASSIFIER}, host="0.0.0.0") as service:
        assert service.post("/predict", {"inputs": "a"}, host="x").status == 200


def test_sites_are_named_as_browsers_name_them():
    for site, origin in {"https://Example.org/": "https://example.org", "http://[::1]:80": "http://[::1]", "*": "*",
                         "https://example.org:443/": "https://example.org", "https://a.example:80": "https://a.example:80",
                         "http://a.example:443": "http://a.example:443", "http://a.example:8080": "http://a.example:8080",
                         "null": "null", "chrome-extension://abc": "chrome-extension://abc"}.items():
        assert run._origin(site) == origin


@pytest.mark.parametrize("flags, parts", [
    ({}, ["--model is required"]),
    ({"model": "Müller=/x"}, ["--model=Müller=/x: a name has letters of ASCII"]),
    ({"model": "..=/x"}, ["--model=..=/x: a name has letters of ASCII"]),
    ({"model": "/nowhere/at/all"}, ["--model=/nowhere/at/all: no trained model"]),
    ({"model": "nowhere"}, ["nowhere"]),
    ({"model": CLASSIFIER, "port": 70000}, ["--port=70000"]),
    ({"model": CLASSIFIER, "host": "no.such.host.invalid"}, ["--host=no.such.host.invalid"]),
    ({"model": CLASSIFIER, "token_file": "nowhere"}, ["--token_file", "nowhere"]),
    *(({"model": CLASSIFIER, "allowed_origin": site}, [f"--allowed_origin={site}: must be a site"]) for site in (
        "example.org/", "https://example.org/page", "https://*.example.org", "https://müller.example", "https://")),
    ({"model": CLASSIFIER, "timeout": 0}, ["--timeout=0"]),
    ({"model": CLASSIFIER, "max_concurrent_requests": 0}, ["--max_concurrent_requests=0"])])
def test_bad_flags_end_with_one_line(flags, parts, capsys):
    with ends_with_error(capsys, *parts):
        run_here({"port": 0, "num_cpu_replicas": 1, **flags}, run)


def test_a_token_has_no_spaces_and_two_models_have_two_names(tmp_path, capsys):
    (tmp_path / "token").write_text("two words")
    with ends_with_error(capsys, "--token_file", "one line"):
        run_here(dict(model=CLASSIFIER, token_file=tmp_path / "token"), run)
    with pytest.raises(SystemExit):
        run.command.run(run.main, run.define_flags(), usage="", argv=[
            "run", f"--model={CLASSIFIER}", f"--model={CLASSIFIER}/"])
    assert "two models of the name classifier" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_before_a_model_is_opened(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        with ends_with_error(capsys, f"--port={taken.getsockname()[1]}", "in use"):
            run_here(dict(model=tmp_path, port=taken.getsockname()[1]), run)


def test_a_port_that_is_taken_while_the_models_are_opened_is_named():
    with run._bind("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        with run._bind("127.0.0.1", port) as own:
            other.listen()
            with pytest.raises(UserError, match=f"--port={port}: .*in use"):
                run._listen(own, "127.0.0.1", port)


def test_models_without_a_name_are_called_as_their_folder(tmp_path):
    shutil.copytree(CLASSIFIER, str(tmp_path / "my model"))
    assert run._models([str(tmp_path / "my model"), "b=x=y", "out/c/"]) == {
        "model": str(tmp_path / "my model"), "b": "x=y", "c": "out/c/"}

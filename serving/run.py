"""Serves trained models over HTTP.

  python -m serving.run --model=out/demo --port=8501
"""

import contextlib
import glob
import ipaddress
import re
import socket
from typing import Dict, List

from absl import flags

from serving import without_tensorflow

if __name__ == "__main__":  # before the modules that import it
    without_tensorflow.leave_out()

from engine import interruption, log, settings
from engine.cli import command, device_flags
from engine.devices import devices, gpus
from engine.disk import artifact, files
from engine.errors import UserError
from serving import model, session

USAGE = """Serves trained models over HTTP, of every kind that reads texts, on every
GPU that CUDA_VISIBLE_DEVICES shows.

  python -m serving.run --model=out/demo --port=8501
  curl 127.0.0.1:8501/predict -H 'Content-Type: application/json' -d '{"inputs": "a text"}'

Routes and JSON follow Text Embeddings Inference: /predict, /embed, /similarity, /rerank, /info,
/health, /metrics; /v1/embeddings follows OpenAI. /openapi.json describes them, and the page at /
tries them. On SIGTERM the service answers the requests that it has, and ends."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")  # not "..", which paths do without
_MOST_TOKEN_BYTES = 4096


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_multi_string(
        "model", None, "Folder of a model: the --output_dir of a training, an export, or a folder "
        "of numbered versions of an export. Clients call it by the folder's name, or NAME in "
        "NAME=FOLDER. Several, each with its own flag: their routes are /models/NAME/...",
        flag_values=values)
    flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 for all of the "
                        "machine's.", flag_values=values)
    flags.DEFINE_integer("port", 8501, "Port to listen on; 0 for any free one.", flag_values=values)
    flags.DEFINE_string("token_file", None, "File with a secret that clients send in the header "
                        "Authorization: Bearer SECRET.", flag_values=values)
    flags.DEFINE_multi_string("allowed_origin", [], "Site, such as https://example.org, whose "
                              "pages may call the service.", flag_values=values)
    flags.DEFINE_bool("prepare", False, "Make the files for onnxruntime in the models' folders, and end.",
                      flag_values=values)
    settings.define_flags(values, model.Limits)
    model.define_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Opens the models and serves until a signal."""
    named, origins = _models(values.model or []), list(map(_origin, values.allowed_origin))
    if without_tensorflow.is_left_out() and (values.prepare or _needs_tensorflow(values)):
        without_tensorflow.start_again()
    if values.prepare:
        _prepare(named, values)
        return
    try:
        from serving import app, connections
    except ImportError as error:
        raise UserError(f"serving.run needs the package {error.name}: pip install -r "
                        "serving/requirements.txt") from error
    limits = settings.from_flags(values, model.Limits)
    token = _read_token(values.token_file) if values.token_file else None
    with contextlib.ExitStack() as stack, _bind(
            values.host, settings.in_range(values, "port", 0, 65535)) as listener:
        models, found = {}, device_flags.find_devices(values, training=False)
        for name, folder in named.items():
            models[name] = model.serve(name, folder, values, found)
            stack.callback(models[name].close)
        without_tensorflow.end()
        signals = stack.enter_context(interruption.InterruptLater())
        signals.hold()
        host, port = listener.getsockname()[:2]
        _listen(listener, host, port)
        application = app.App(models, limits, token, origins,
                              is_local=ipaddress.ip_address(host.partition("%")[0]).is_loopback)
        shown = f"[{host}]" if ":" in host else host
        log.info(f"Serving {', '.join(models)} at http://{shown}:{port}")
        connections.serve(application, listener, limits.timeout, lambda: bool(signals.received))


def _prepare(named: Dict[str, str], values: flags.FlagValues) -> None:
    """Makes what the engine reads, of the newest versions."""
    if values.engine == session.TENSORFLOW:
        raise UserError(f"--prepare: --engine={values.engine} reads no file of its own; leave one of them out")
    for folder in named.values():
        kept = session.file_of(values.engine, model.served_folders(folder)[0][0])
        with artifact.making(kept, replaces=artifact.ODD) as must_make:
            if must_make:
                session.make(kept)


def _needs_tensorflow(values: flags.FlagValues) -> bool:
    """Whether TensorFlow computes, or must say what is wrong with the cards."""
    has_cards = bool(gpus.on_machine() or glob.glob("/dev/nvidia[0-9]*"))  # a container may have any of them
    is_for_cpu = values.num_cpu_replicas or 0 in (values.num_gpus, values.n_gpus) or gpus.are_hidden()
    return (values.engine == session.TENSORFLOW or has_cards and not is_for_cpu
            or values.precision in (devices.FLOAT16, devices.BFLOAT16))


def _models(flags_given: List[str]) -> Dict[str, str]:
    """Name → folder."""
    folders: Dict[str, str] = {}
    for each in flags_given:
        name, equals, folder = each.partition("=")
        if equals and "/" not in name and not _NAME.fullmatch(name):
            raise UserError(f"--model={each}: a name has letters of ASCII, digits, '.', '_' and '-', and "
                            "begins with no '.'")
        if not equals or "/" in name:
            name, folder = _NAME.findall(each)[-1:] or ["model"], each
            name = name[0]
        if name in folders:
            raise UserError(f"--model={each}: there are two models of the name {name}; give each "
                            "as --model=NAME=FOLDER")
        folders[name] = folder
    if not folders:
        raise UserError("--model is required: the folder of a trained model")
    return folders


def _origin(site: str) -> str:
    """A site as browsers name it, without a default port; raises a UserError for a name that they give none."""
    origin = re.sub(r"^(http:.*):80$|^(https:.*):443$", r"\1\2", site.rstrip("/").lower())
    if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+", origin):
        raise UserError(f"--allowed_origin={site}: must be a site, such as https://example.org, or * for all")
    return origin


def _read_token(path: str) -> bytes:
    """The secret in a file; raises a UserError if there is none."""
    token = files.read_whole(path, "--token_file", _MOST_TOKEN_BYTES).strip()
    if not re.fullmatch(rb"[!-~]+", token):
        raise UserError(f"--token_file={path}: must hold one line of visible ASCII characters "
                        "without spaces")
    return token


def _bind(host: str, port: int) -> socket.socket:
    """A socket that is not listened on yet: clients are to wait until the models are open."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host={host} --port={port}: {error}") from error
    return listener


def _listen(listener: socket.socket, host: str, port: int) -> None:
    try:
        listener.listen()
    except OSError as error:  # another service began to listen while the models were opened
        raise UserError(f"--host={host} --port={port}: {error}") from error


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)

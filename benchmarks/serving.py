"""Answers over HTTP: the service, and those that one would have without it.

  python -m benchmarks.serving --model=MINILM_TF --texts=SHARED_DATA/glue/SST-2/dev.tsv

MiniLM with a classification layer, and the same with its first two layers alone. All services run side by
side, and 1, 8 and 64 clients ask each in turn, one text a request, over connections that stay open; those
that are not asked wait. They are the service with each engine; a server written by hand on the same file
(benchmarks/peers/starlette_serving.py), with one thread a step and with as many as onnxruntime takes; with
--peer_python, which has transformers and FastAPI, Hugging Face's pipeline; and with --tei, the command
text-embeddings-router, Text Embeddings Inference by the command line that it publishes.
"""

import argparse
import asyncio
import contextlib
import glob
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterator, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import report
from encoder import model_files, task_json, vocabulary
from engine.checkpoints import checkpoints
from engine.disk import files

OURS, INT8, TENSORFLOW, BY_HAND, BY_HAND_THREADS, PIPELINE, TEI = (
    "ours", "ours, int8", "ours, by TensorFlow", "by hand, one thread", "by hand", "pipeline", "TEI")
LAYERS = {"MiniLM": 6, "two-layer student": 2}
CLIENTS = (1, 8, 64)
LONGEST = 128
_SECONDS_TO_START = 300


class Measured(NamedTuple):
    """What some clients saw in a while."""
    latencies: np.ndarray  # seconds, [requests]
    seconds: float  # that it took
    processor_seconds: float  # of the service


def write_classifier(source: str, folder: str, num_layers: int) -> None:
    """Writes a classifier with a random output layer on the first layers of an encoder."""
    model = model_files.open_folder(source, "--model")
    names = [name for name in model.checkpoint.parameters() if name.startswith("bert/")
             and int((re.findall(r"layer_(\d+)/", name) or [0])[0]) < num_layers]
    values = {name: tf.train.load_variable(model.checkpoint.path, name) for name in names}
    config = model.config()
    config.num_hidden_layers = num_layers
    draw = np.random.RandomState(0)
    values["output_weights"] = draw.normal(0, 0.5, (2, config.hidden_size)).astype(np.float32)
    values["output_bias"] = np.zeros(2, np.float32)
    os.makedirs(folder)
    model_files.save(folder, config, model.file(vocabulary.FILE), vocabulary.read_casing(model.folder))
    checkpoints.write_checkpoint(os.path.join(folder, "model.ckpt"), values)
    tf.train.update_checkpoint_state(folder, "model.ckpt")
    files.write_json(os.path.join(folder, task_json.FILE), {
        "kind": "classes", "labels": ["0", "1"], "label_separator": "", "takes_pairs": False,
        "do_lower_case": vocabulary.read_casing(model.folder), "max_seq_length": LONGEST})


class Service(NamedTuple):
    """A service that runs."""
    port: int
    process_id: int

    def processor_seconds(self) -> float:
        """That it has used."""
        with open(f"/proc/{self.process_id}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """That it holds."""
        with open(f"/proc/{self.process_id}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def services(folder: str, converted: str, args: argparse.Namespace) -> Iterator[Dict[str, Service]]:
    """Starts all services on a model; yields them by name."""
    ours = [sys.executable, "-m", "serving.run", "--num_gpus=0", f"--model={folder}"]
    subprocess.run([*ours, "--prepare"], cwd=report.ROOT, check=True)
    subprocess.run([*ours, "--prepare", "--engine=int8"], cwd=report.ROOT, check=True)
    file, = (path for path in glob.glob(os.path.join(folder, "serving-*.onnx")) if "int8" not in path)
    by_hand = [sys.executable, "-m", "benchmarks.peers.starlette_serving", f"--file={file}",
               f"--vocab={folder}/{vocabulary.FILE}"]
    commands = {
        OURS: ours, INT8: [*ours, "--engine=int8"], TENSORFLOW: [*ours, "--engine=tensorflow"],
        BY_HAND: [*by_hand, "--threads=1"], BY_HAND_THREADS: [*by_hand, "--threads=0"]}
    if args.peer_python:
        commands[PIPELINE] = [args.peer_python, "-m", "benchmarks.peers.huggingface_serving",
                              f"--model_dir={converted}"]
    if args.tei:
        commands[TEI] = [args.tei, "--model-id", converted, "--dtype", "float32"]
    with contextlib.ExitStack() as stack:
        running = {}
        for name, command in commands.items():
            port = free_port()
            process = subprocess.Popen([*command, *(["--port", str(port)])], cwd=report.ROOT)
            stack.callback(stop, process)
            wait_for(port, process)
            running[name] = Service(port, process.pid)
        yield running


def stop(process: subprocess.Popen) -> None:
    """Ends a service, and waits for its end."""
    process.terminate()
    process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen) -> None:
    """Returns once a service can be connected to."""
    end = time.time() + _SECONDS_TO_START
    while time.time() < end and process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.2)
    raise SystemExit(f"{process.args} does not answer")


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> Dict[str, float]:
    """The scores by label."""
    body = json.dumps({"inputs": text}).encode("utf-8")
    writer.write(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    head = await reader.readuntil(b"\r\n\r\n")
    answer = await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head).group(1)))
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise SystemExit(f"{head.decode()}{answer.decode()}")
    return {each["label"]: each["score"] for each in json.loads(answer.decode("utf-8"))}


async def _client(port: int, texts: List[str], end: float, latencies: List[float]) -> None:
    """Asks for one of the texts after the other, over and over, at least once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for text in itertools.cycle(texts):
        start = time.perf_counter()
        await _ask(reader, writer, text)
        latencies.append(time.perf_counter() - start)
        if time.perf_counter() >= end:
            break
    writer.close()


async def _clients(service: Service, texts: List[str], count: int, seconds: float) -> Measured:
    places = np.linspace(0, len(texts), count, endpoint=False).astype(int)  # each begins elsewhere
    latencies, start, used = [], time.perf_counter(), service.processor_seconds()
    await asyncio.gather(*(_client(service.port, texts[place:] + texts[:place], start + seconds, latencies)
                           for place in places))
    return Measured(np.array(latencies), time.perf_counter() - start, service.processor_seconds() - used)


async def _check_agreement(running: Dict[str, Service], texts: List[str]) -> None:
    """Ends the benchmark if the services answer differently."""
    found = {}
    for name, service in running.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        found[name] = [(await _ask(reader, writer, text))["1"] for text in texts]
        writer.close()
    for name in running:
        np.testing.assert_allclose(found[name], found[OURS], atol=0.2 if name == INT8 else 1e-4, err_msg=name)


def measure(args: argparse.Namespace, name: str, work_dir: str, texts: List[str]) -> List[Dict[str, str]]:
    """The rows of one model."""
    folder, converted = os.path.join(work_dir, name), os.path.join(work_dir, f"{name} for PyTorch")
    write_classifier(args.model, folder, LAYERS[name])
    subprocess.run([sys.executable, "-m", "encoder.convert", f"--from_tensorflow={folder}",
                    f"--output_dir={converted}"], cwd=report.ROOT, check=True)
    rows: List[Dict[str, str]] = []
    with services(folder, converted, args) as running:
        asyncio.run(_check_agreement(running, texts[:20]))
        for count in CLIENTS:
            found: Dict[str, List[Measured]] = {service: [] for service in running}
            for service in running.values():
                asyncio.run(_clients(service, texts, count, args.seconds / 4))  # warm
            for _ in range(args.rounds):
                for each, service in running.items():
                    found[each].append(asyncio.run(_clients(service, texts, count, args.seconds)))
            rows += [_row(name, count, each, running[each], found) for each in running]
    return rows


def _row(name: str, count: int, of: str, service: Service, found: Dict[str, List[Measured]]) -> Dict[str, str]:
    def rates(of: str) -> List[float]:
        return [len(each.latencies) / each.seconds for each in found[of]]

    def costs(of: str) -> List[float]:
        return [each.processor_seconds / len(each.latencies) * 1e3 for each in found[of]]

    latencies = np.concatenate([each.latencies for each in found[of]]) * 1e3
    p50, p99 = np.percentile(latencies, (50, 99))
    return {"model": name, "clients": str(count), "service": of, "p50, ms": f"{p50:.1f}", "p99, ms": f"{p99:.1f}",
            "processor, ms a text": f"{np.median(costs(of)):.1f}", "texts/s": f"{np.median(rates(of)):.0f}",
            "RSS, MB": f"{service.memory_mb():.0f}",
            "ours: texts/s ÷ its": "" if of == OURS else report.ratios(rates(OURS), rates(of)),
            "ours: processor ÷ its": "" if of == OURS else report.ratios(costs(OURS), costs(of))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "texts"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--peer_python")
    parser.add_argument("--tei")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with open(args.texts, encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in file][1:]
    rows: List[Dict[str, str]] = []
    with tempfile.TemporaryDirectory() as work_dir:
        for name in LAYERS:
            rows += measure(args, name, work_dir, texts)
    report.append("Answers over HTTP", rows, **report.versions_of(sys.executable, "onnxruntime"),
                  **report.versions_of(args.peer_python, "torch", "transformers", "fastapi"))


if __name__ == "__main__":
    main()

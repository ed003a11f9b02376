"""Does a service answer as runs.predict does, and does its memory stay flat? Many requests of many clients.

  python -m benchmarks.served_answers --models classifier=OUTPUT_DIR vectors=OUTPUT_DIR --texts=texts.txt

Models that take single texts. The first 1,000 texts go to each from 24 clients, 1 to 40 in a request, and are
compared with runs.predict's. Then so many requests follow, a tenth of them wrong.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, Iterator, List

from benchmarks import report
from benchmarks.serving import free_port, stop, wait_for

CLIENTS, MOST_TEXTS, COMPARED = 24, 40, 1000
WRONG = (b"{", b"[]", b'{"inputs": 1}', b'{"inputs": []}')
_own = threading.local()


@contextlib.contextmanager
def service(models: List[str]) -> Iterator[List[int]]:
    """The process number and the port of a service."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.run", "--num_gpus=0", f"--port={port}",
         *(f"--model={model}" for model in models)], cwd=report.ROOT)
    try:
        wait_for(port, process)
        yield [process.pid, port]
    finally:
        stop(process)


def post(port: int, name: str, body: bytes) -> Any:
    """The answer over this thread's connection; None for a request that is refused."""
    if not hasattr(_own, "connection"):
        _own.connection = http.client.HTTPConnection("127.0.0.1", port)
    _own.connection.request("POST", f"/models/{name}/predict", body, {"Content-Type": "application/json"})
    response = _own.connection.getresponse()
    answer = json.loads(response.read().decode("utf-8"))
    if response.status >= 500:
        raise SystemExit(f"{response.status}: {answer}")
    return answer if response.status == 200 else None


def bodies(texts: List[str], draw: random.Random) -> Iterator[List[str]]:
    """All texts in order, some in each."""
    start = 0
    while start < len(texts):
        size = draw.randint(1, MOST_TEXTS)
        yield texts[start:start + size]
        start += size


def inputs(texts: List[str]) -> bytes:
    return json.dumps({"inputs": [[text] for text in texts], "truncate": True}).encode("utf-8")


def predicted(folder: str, texts: List[str]) -> List[Dict[str, Any]]:
    """What runs.predict writes for the texts."""
    with tempfile.TemporaryDirectory() as work_dir:
        with open(f"{work_dir}/texts.txt", "w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in texts)
        subprocess.run([sys.executable, "-m", "runs.predict", f"--output_dir={folder}", "--num_gpus=0",
                        f"--input_file={work_dir}/texts.txt", "--header=false",
                        f"--output_file={work_dir}/found.jsonl"], cwd=report.ROOT, check=True)
        with open(f"{work_dir}/found.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def difference(answer: Any, entry: Dict[str, Any]) -> float:
    """The largest difference of two numbers; everything else must be equal."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict) and "score" in answer[0]:
        answer = {each["label"]: each["score"] for each in answer}
        entry = entry.get("probabilities", entry)
    if isinstance(answer, dict) and answer.keys() == entry.keys():
        return max((difference(value, entry[name]) for name, value in answer.items()), default=0.0)
    if isinstance(answer, list) and len(answer) == len(entry):
        return max(map(difference, answer, entry), default=0.0)
    if isinstance(answer, float):
        return abs(answer - entry)
    if answer != entry:
        raise SystemExit(f"{answer!r} is not {entry!r}")
    return 0.0


def resident(process: int) -> float:
    """MB of memory that a process has."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--requests", type=int, default=100_000)
    args = parser.parse_args()
    models = dict(each.split("=", 1) for each in args.models)
    models = {name: os.path.abspath(folder) for name, folder in models.items()}
    with open(args.texts, encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line in file][:COMPARED]
    draw, rows, memory = random.Random(0), [], []
    with service([f"{name}={folder}" for name, folder in models.items()]) as (process, port), \
            concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for name, folder in models.items():
            parts = [inputs(part) for part in bodies(texts, draw)]
            answers = [each for part in clients.map(lambda body: post(port, name, body), parts)
                       for each in part]
            rows.append({"model": name, "texts": f"{len(answers):,}", "largest difference":
                         f"{max(map(difference, answers, predicted(folder, texts))):.0e}"})
        for _ in range(10):
            names = draw.choices(list(models), k=args.requests // 10)
            some = [draw.choice(WRONG) if draw.random() < 0.1 else inputs([draw.choice(texts)]) for _ in names]
            list(clients.map(lambda name, body: post(port, name, body), names, some))
            memory.append(f"{resident(process):.0f}")
    report.append(
        f"The service beside runs.predict; MB after each tenth of {args.requests:,} requests: {', '.join(memory)}",
        rows, command=f"python -m benchmarks.served_answers --requests={args.requests}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

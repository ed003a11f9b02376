"""What a trivial answer costs an HTTP server: uvicorn with httptools beside waitress, in turn.

  pip install waitress && python -m benchmarks.http_servers

1 and 64 clients, over connections that stay open; processor time of the server's process per request.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from typing import List, Tuple

import numpy as np

from benchmarks import report
from benchmarks.serving import free_port, stop, wait_for

SERVERS = {
    "uvicorn": """
import sys, uvicorn
async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="asyncio", ws="none", lifespan="off",
            log_level="critical")
""",
    "waitress": """
import sys, waitress
def app(environ, start):
    start("200 OK", [("Content-Length", "2")])
    return [b"{}"]
waitress.serve(app, port=int(sys.argv[1]), threads=64, host="127.0.0.1", _quiet=True)
"""}
CLIENTS = (1, 64)
_REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


async def _client(port: int, end: float, latencies: List[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(_REQUEST)
        await reader.readuntil(b"\r\n\r\n{}")
        latencies.append(time.perf_counter() - start)
    writer.close()


async def _clients(port: int, count: int, seconds: float) -> List[float]:
    latencies, end = [], time.perf_counter() + seconds
    await asyncio.gather(*(_client(port, end, latencies) for _ in range(count)))
    return latencies


def measure(name: str, count: int, seconds: float) -> Tuple[float, float, float]:
    """Milliseconds of a processor per request, requests/s and the median latency, ms."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVERS[name], str(port)])
    wait_for(port, process)
    before = _processor_seconds(process.pid)
    latencies = asyncio.run(_clients(port, count, seconds))
    after = _processor_seconds(process.pid)
    stop(process)
    return (after - before) / len(latencies) * 1e3, len(latencies) / seconds, float(np.median(latencies)) * 1e3


def _processor_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a measurement")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for count in CLIENTS:
        found = {name: [] for name in SERVERS}
        for _ in range(args.pairs):
            for name in SERVERS:
                found[name].append(measure(name, count, args.seconds))
        for name, values in found.items():
            cost, rate, latency = np.median(values, axis=0)
            rows.append({"clients": count, "server": name, "processor, ms": f"{cost:.3f}",
                         "requests/s": f"{rate:,.0f}", "p50, ms": f"{latency:.2f}"})
    report.append(
        "HTTP servers, a trivial answer (medians)", rows, command="python -m benchmarks.http_servers",
        versions={name: report.version_of(sys.executable, name) for name in ("uvicorn", "httptools", "waitress")})


if __name__ == "__main__":
    main()

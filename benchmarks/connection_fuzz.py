"""Messages at random to workers' connections: does any end a run, hold it up, or join wrongly?

  python -m benchmarks.connection_fuzz --cases=5000

Half of the cases are sent to a worker that waits for another one, on connections of strangers, to a
run with a secret: the answer must be none or a refusal, and after each 500 the right worker must
meet it. The other half are sent in the place of a worker that has joined, each to a fork, and then
the connection ends: the fork must end with one line that names this worker, for the message or for
the end, so it has not stopped to watch. Ends with status 1 if a case did anything else or took longer
than 10 seconds, or if the memory grew. TensorFlow is not loaded.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import resource
import select
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from engine import log
from engine.errors import USER_ERROR_STATUS, UserError
from engine.workers import connections, coordination, messages, sockets
from engine.workers.cluster import PEER_LOST_STATUS, Cluster
from engine.workers.sockets import Link

SECRET = "known to the workers alone"
SECONDS = 10.0  # for a case
BATCH = 500  # cases between two meetings
GROWTH_BYTES = 32 << 20
CLUSTER = Cluster(("127.0.0.1:1", "127.0.0.1:2"), 0)
_LINE = re.compile(r"error: (the workers do not do the same: )?worker 1 \(127\.0\.0\.1:2\) [^\n]*\n")
_VALUES = (None, True, -1, 0, 256, 1e308, 10**30, 0.5, "", "x", "\x1b[2J", "\ud800", [], {}, [[]],
           "x" * 5000, float("nan"), float("inf"), "0" * 64)


def random_message(generator: random.Random, seen: Sequence[Dict[str, Any]]) -> bytes:
    """Bytes, or a message that workers send, damaged; often none that could be valid."""
    kind = generator.randrange(8)
    if kind == 0:
        return bytes(generator.randrange(256) for _ in range(generator.choice((1, 20, 5000))))
    if kind == 1:
        return generator.choice((b"[", b'{"a":', b"[[],", b'"', b"9", b" ", b"\\", b"\0")) * (
            generator.choice((10, 5000, 100000))) + generator.choice((b"", b"\n"))
    message = dict(generator.choice(seen))
    for _ in range(generator.choice((0, 1, 1, 2))):
        key = generator.choice([*message, "status", "why", "key", "value", "from", "welcome"])
        if generator.random() < 0.3:
            message.pop(key, None)
        else:
            message[key] = generator.choice((*_VALUES, *message.values()))
    line = bytearray(messages.encode(message))
    if kind == 2:
        line[generator.randrange(len(line))] = generator.randrange(256)
    if kind == 3:
        line = line[:generator.randrange(len(line))]
    return bytes(line) * generator.choice((1, 1, 1, 3))


def samples(cluster: Cluster, index: int) -> List[Dict[str, Any]]:
    """What the worker at `index` may say, with the proofs of somebody who does not know the secret."""
    hello = {"from": index, "to": 1 - index, "nonce": messages.nonce(),
             "cluster": messages.proof("", cluster.addresses)}
    proof = messages.proof("guessed", hello)
    replayed = messages.proof(SECRET, "hello", messages.nonce(), hello)
    return [{**hello, "proof": replayed}, {**hello, "proof": proof}, {**hello, "proof": proof, "status": 7, "why": "so"}, {},
            {"welcome": proof}, {"refused": "so"}, {"challenge": messages.nonce()},
            {"key": "all", "value": {"a": [1, "b"]}}, {"status": 0, "why": ""},
            {"status": 3, "why": "so"}, {"from": 1, "status": 0, "why": "x"}]


class Waiting:
    """A worker, in a thread, that waits for the only other one."""

    def __init__(self):
        with contextlib.ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(2)]
            for each in probes:
                each.bind(("127.0.0.1", 0))
            addresses = tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in probes)
        self.cluster = Cluster(addresses, 0, SECRET)
        self.error: Optional[BaseException] = None
        self._connections = connections.Connections(self.cluster, _ignore)
        self._thread = threading.Thread(target=self._meet, daemon=True)
        self._thread.start()

    def attack(self, line: bytes) -> str:
        """Sends a line, and returns what happened."""
        with self._connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionError):
                for received in iter(lambda: connection.recv(4096), b""):
                    answer += received
        said = [set(json.loads(line.decode())) for line in answer.splitlines()]
        if self.error or not self._thread.is_alive():
            return f"wrong: it ended, {self.error!r}"
        if said == [{"challenge"}]:
            return "closed"
        return "refused" if said == [{"challenge"}, {"refused"}] else f"wrong: {answer[:200]}"

    def meet(self) -> str:
        """Has the right worker come; returns what is wrong."""
        other = connections.Connections(self.cluster._replace(index=1), _ignore)
        try:
            other.open(SECONDS)
        except Exception as error:
            return f"wrong: {error!r}"
        self._thread.join(SECONDS)
        if self.error or self._thread.is_alive():
            return f"wrong: {self.error!r}"
        for worker in (other, self._connections):
            worker.close_port()
            for each in (*worker.to.values(), *worker.by.values()):
                each.close()
        return ""

    def _connect(self) -> socket.socket:
        end = time.monotonic() + SECONDS
        while True:
            try:
                host, port = self.cluster.addresses[0].split(":")
                return socket.create_connection((host, int(port)), SECONDS)
            except ConnectionRefusedError:  # it does not listen so far
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _meet(self) -> None:
        try:
            self._connections.open(600)
        except BaseException as error:
            self.error = error


def _ignore(index: int, link: Link) -> None:
    """In place of a worker that receives messages."""


class Joined:
    """Forks that have joined one worker, as which the messages are sent."""

    def __init__(self):
        self._listener, = sockets.listen("127.0.0.1:0")

    def attack(self, line: bytes) -> str:
        """Sends a line to a fork, and then ends the connection; returns what happened."""
        status, said = self.end_after(line)
        if not _LINE.fullmatch(said) or status in (0, 1):
            return f"wrong: status {status}, {said[-300:]!r}"
        return {PEER_LOST_STATUS: "lost", 2: "not the same"}.get(status, "ended as it said")

    def end_after(self, line: bytes) -> Tuple[int, str]:
        """The status with which a fork ends, and what it says."""
        ours, theirs = zip(*(self._connection() for _ in range(2)))
        reading, writing = os.pipe()
        process_id = os.fork()
        if not process_id:
            os.dup2(writing, 2)
            for each in ours:
                each.close()
            _wait_for_other(*theirs)
        for each in theirs:
            each.close()
        os.close(writing)
        with contextlib.suppress(OSError):
            ours[0].sendall(line)
        ours[0].close()
        with open(reading, errors="replace") as file:
            said = file.read()
        ours[1].close()
        return os.WEXITSTATUS(os.waitpid(process_id, 0)[1]), said

    def _connection(self) -> Tuple[socket.socket, socket.socket]:
        ours = socket.create_connection(self._listener.getsockname())
        select.select([self._listener], [], [])
        return ours, self._listener.accept()[0]


def _wait_for_other(by: socket.socket, to: socket.socket) -> None:
    """What a worker does that waits for another one that has joined; the process ends here."""
    def join(self: connections.Connections, timeout: float) -> None:
        self.to[1], self.by[1] = Link(to), Link(by)
        for link in (self.to[1], self.by[1]):
            link.trust()
            threading.Thread(target=self._receive, args=(1, link), daemon=True).start()

    connections.Connections.open = join
    log.quiet()
    us = coordination.Peers(CLUSTER, SECONDS)
    us.meet(SECONDS)
    try:
        us.hear(1, "never said")
    except UserError as error:  # as `engine.cli.command`
        us.leave(USER_ERROR_STATUS, str(error))
        os.write(2, f"error: {error}\n".encode())
        os._exit(USER_ERROR_STATUS)


def outcomes(cases: int, seed: int) -> Iterator[Tuple[str, str, bytes]]:
    """(which worker, what happened, the message) of each case."""
    generator = random.Random(seed)
    for first in range(0, cases // 2, BATCH):
        waiting = Waiting()
        seen = samples(waiting.cluster, 1)
        for _ in range(first, min(first + BATCH, cases // 2)):
            line = random_message(generator, seen)
            yield "waiting", _timed(waiting.attack, line), line
        yield "waiting", waiting.meet() or "met the right worker", b""
    joined = Joined()
    for _ in range(cases // 2):
        line = random_message(generator, seen)
        yield "joined", _timed(joined.attack, line), line


def _timed(attack, line: bytes) -> str:
    start = time.monotonic()
    outcome = attack(line)
    return outcome if time.monotonic() - start < SECONDS else f"wrong: slow, {outcome}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    coordination._GRACE_SECONDS = coordination._LAST_WORDS_SECONDS = 0.0
    counts: Dict[Tuple[str, str], int] = collections.Counter()
    memory: List[int] = []
    start = time.monotonic()
    for worker, outcome, line in outcomes(args.cases, args.seed):
        counts[worker, outcome.split(":")[0]] += 1
        memory.append(max(resource.getrusage(who).ru_maxrss << 10 for who in (
            resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        if outcome.startswith("wrong"):
            print(worker, outcome, line[:300], flush=True)
    for (worker, outcome), count in sorted(counts.items()):
        print(f"{worker}: {outcome}: {count}")
    growth = memory[-1] - memory[min(100, len(memory) - 1)]
    print(f"{time.monotonic() - start:.0f} s, the peak of the memory grew by {growth / 1e6:.1f} MB")
    assert "tensorflow" not in sys.modules
    is_wrong = any(outcome == "wrong" for _, outcome in counts)
    sys.exit(is_wrong or growth > GROWTH_BYTES)


if __name__ == "__main__":
    main()

"""Starts a command on several machines, or in several processes on this one.

  python -m engine.launch --hosts=a,b -- run_classifier.py --do_train ...

After -- comes a Python script, or -m and a module, and its flags. It starts here directly, and over
ssh on other machines, in the same directory with the same interpreter. The first worker's output is
forwarded unchanged, the others' lines after "[HOST:NUMBER]". A worker that exits with a status from 1
to 127 ends the run with that status. If one is lost (128 and more), all workers restart from the last
checkpoint.
"""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from signal import SIGKILL, SIGTERM, Signals
from typing import IO, Callable, List, Mapping, NamedTuple, Optional, Sequence

from absl import flags

from engine import log
from engine.cli import command, remote, worker_main
from engine.errors import UserError

LOST_STATUS = 128  # and more: killed by a signal, or a peer or its connection was lost
PORT = 29400
_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 6.0  # for the other workers to notice and report the failure of one
_REST_SECONDS = 10.0  # for the others to exit after the chief has succeeded
_FAILED_SECONDS = 5.0  # between SIGTERM and SIGKILL, with nothing left to save
_HOST_SECONDS = 300.0  # for a machine or its network to come back before a restart


class Place(NamedTuple):
    """The host and the numbers of a worker."""
    host: str
    index: int  # among all workers
    local_index: int  # among the workers of its machine
    local_processes: int
    is_here: bool

    @property
    def label(self) -> str:
        """The prefix of the worker's lines."""
        return f"[{_machine(self.host)}:{self.index}]"


class Worker:
    """A started worker.

    Args:
        place: its host and numbers.
        words: the command line that starts `engine.cli.worker_main`.
        environment: variables for that process.
    """

    def __init__(self, place: Place, words: Sequence[str], environment: Mapping[str, str]):
        self.place, is_chief = place, place.index == 0
        pipe = None if is_chief else subprocess.PIPE  # the chief's output is the launcher's
        # In its own session: Ctrl-C reaches only the launcher, which then ends all workers.
        self._process = subprocess.Popen(
            remote.arguments(None if place.is_here else place.host, words),
            stdin=subprocess.PIPE, stdout=pipe, stderr=pipe, start_new_session=True)
        streams = () if is_chief else (
            (self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr))
        self._relays = [threading.Thread(target=self._relay, args=pair, daemon=True) for pair in streams]
        for relay in self._relays:
            relay.start()
        self._write(remote.as_input(environment))

    @property
    def status(self) -> Optional[int]:
        """Its exit status, as a shell reports it; None while it runs."""
        code = self._process.poll()
        return None if code is None else worker_main.status_of(code)

    def send(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        self._write(bytes([number]))

    def close(self) -> None:
        """Forwards its last output, and frees its resources."""
        self._process.kill()  # ssh, if its machine does not answer
        self._process.wait()
        self._process.stdin.close()
        for relay in self._relays:
            relay.join(_LAST_WORDS_SECONDS)

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            while content:
                content = content[os.write(self._process.stdin.fileno(), content):]

    def _relay(self, source: IO[bytes], target: IO[str]) -> None:
        with source:
            for line in source:
                target.write(f"{self.place.label} {line.decode(errors='replace').rstrip()}\n")
                target.flush()


class Launcher(NamedTuple):
    """Starts the workers of a run, and restarts them."""
    words: Sequence[str]  # the command
    places: List[Place]
    port: Optional[int]  # the first worker's on each machine; None for free ones

    def run(self, max_restarts: int) -> int:
        """Runs all workers to their end; restarts all of them if one is lost.

        Returns:
            0 if all succeeded; else the status of the decisive worker.
        """
        for restart in range(1, max_restarts + 1):
            status = self._run_once()
            if status < LOST_STATUS:
                return status
            self.check_hosts(_HOST_SECONDS)
            log.info(f"All workers restart from the last checkpoint: restart "
                     f"{restart} of {max_restarts}")
        return self._run_once()

    def check_hosts(self, seconds: float = 0.0) -> None:
        """Raises a UserError if a machine cannot be reached, or lacks the code or interpreter.

        Args:
            seconds: how long to retry.
        """
        deadline = time.monotonic() + seconds
        for host in dict.fromkeys(place.host for place in self.places if not place.is_here):
            said = _probe(host)
            while said and time.monotonic() < deadline:
                time.sleep(1)
                said = _probe(host)
            if said:
                raise UserError(
                    f"no worker can be started on {host}: {said}; ssh must reach it without a "
                    f"password, and find {os.getcwd()} and {sys.executable} there")

    def _run_once(self) -> int:
        workers: List[Worker] = []
        try:
            addresses = self._addresses()
            for place in self.places:
                workers.append(self._start(place, addresses))
            _wait_until(lambda: _is_over(workers))
            _wait_until(lambda: any(worker.status for worker in workers) or _ended(workers),
                        _REST_SECONDS)
            failed = [worker for worker in workers if worker.status]
            if not failed:
                return 0
            _wait_until(lambda: _ended(workers), _LAST_WORDS_SECONDS)
            # A worker that failed for good decides, otherwise the first in the list that failed.
            decisive = min((worker for worker in workers if worker.status),
                           key=lambda worker: (worker.status >= LOST_STATUS, worker is not failed[0]))
            log.warn(f"{decisive.place.label} {_described(decisive.status)}")
            return decisive.status
        finally:
            _end(workers)

    def _addresses(self) -> List[str]:
        """HOST:PORT of each worker."""
        ports = (_free_ports(len(self.places)) if self.port is None
                 else [self.port + place.local_index for place in self.places])
        return [f"{_machine(place.host)}:{port}" for place, port in zip(self.places, ports)]

    def _start(self, place: Place, addresses: List[str]) -> Worker:
        config = {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses},
                                           "task": {"type": "worker", "index": place.index}})}
        words = [sys.executable, "-m", "engine.cli.worker_main", str(place.local_index),
                 str(place.local_processes), *self.words]
        return Worker(place, words, {**remote.variables(), **config})


def _probe(host: str) -> str:
    """Why no worker can be started on a machine; "" if one can."""
    answer = subprocess.run(
        remote.arguments(host, [sys.executable, "-c", "import engine.cli.worker_main"]),
        input=remote.as_input(remote.variables()), stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True)
    said = answer.stderr.decode(errors="replace").strip() or "ssh gave no reason"
    return said.splitlines()[-1] if answer.returncode else ""


def _described(status: int) -> str:
    if status in {LOST_STATUS + number for number in Signals}:
        return f"was ended by {Signals(status - LOST_STATUS).name}"
    return f"ended with status {status}"


def _is_over(workers: List[Worker]) -> bool:
    """Whether a worker has failed, or the chief, which writes the results, has succeeded."""
    return any(worker.status for worker in workers) or workers[0].status == 0


def _ended(workers: List[Worker]) -> bool:
    return all(worker.status is not None for worker in workers)


def _wait_until(is_so: Callable[[], bool], seconds: float = float("inf")) -> None:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _end(workers: List[Worker]) -> None:
    """Ends the running workers; after a signal to the launcher, they may save a step first."""
    is_over = bool(workers) and _is_over(workers)
    for number, seconds in ((SIGTERM, _FAILED_SECONDS if is_over else worker_main.END_SECONDS),
                            (SIGKILL, _FAILED_SECONDS)):
        for worker in workers:
            worker.send(number)
        _wait_until(lambda: _ended(workers), seconds)
    for worker in workers:
        worker.close()


def _free_ports(count: int) -> List[int]:
    """Ports of this machine that nothing uses now."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in opened]


def _machine(host: str) -> str:
    """The name in USER@NAME."""
    return host.rpartition("@")[2]


def _is_here(host: str) -> bool:
    """Whether an address of the host is this machine's: a socket can be bound to it."""
    try:
        address = socket.getaddrinfo(_machine(host), 0, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except (OSError, UnicodeError) as error:  # the latter of a name such as node[1..4]
        raise UserError(f"--hosts: {host}: {getattr(error, 'strerror', error)}") from error
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind(address)
        return True
    return False


def _places(hosts: List[str], processes: int) -> List[Place]:
    names = [_machine(host) for host in hosts]
    if not names or not all(names) or any(part.startswith("-") for part in hosts + names):
        raise UserError(f"--hosts={','.join(hosts)}: must be names of machines, separated by "
                        "commas, none beginning with -")
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--hosts names {name} more than once; for several workers on "
                            "each machine use --processes_per_host")
    if len(hosts) > 1 and {"localhost", "127.0.0.1"} & set(names):
        raise UserError(f"--hosts={','.join(hosts)}: the others cannot reach this machine as "
                        "localhost; give its name in the network")
    return [Place(host, index * processes + local, local, processes, is_here)
            for index, (host, is_here) in enumerate([(host, _is_here(host)) for host in hosts])
            for local in range(processes)]


def main(words: Sequence[str], values: flags.FlagValues) -> None:
    """Runs the workers, and ends with their status."""
    places = _places(values.hosts, values.processes_per_host)
    all_here = all(place.is_here for place in places)
    launcher = Launcher(words, places, values.port or (None if all_here else PORT))
    launcher.check_hosts()
    sys.exit(launcher.run(values.max_restarts))


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_list(
        "hosts", ["localhost"], "The machines, separated by commas, as NAME or USER@NAME; the "
        "first one writes the results.", flag_values=values)
    flags.DEFINE_integer(
        "processes_per_host", 1, "Workers on each machine. Each takes its share of the visible "
        "cards: 1 gives all cards to one worker, their number gives each worker one card.",
        lower_bound=1, flag_values=values)
    flags.DEFINE_integer(
        "max_restarts", 3, "Maximum number of restarts of all workers after one was lost.",
        lower_bound=0, flag_values=values)
    flags.DEFINE_integer(
        "port", None, "The port of the first worker on each machine; the others have the following "
        f"ones. By default {PORT}, or free ones if all workers are on this machine.",
        lower_bound=1, upper_bound=65535, flag_values=values)
    return values


def start() -> None:
    """Runs the command line."""
    if "TF_CONFIG" in os.environ:
        command.exit_with("TF_CONFIG is set, so something else starts the workers: run the command "
                          "directly, or unset TF_CONFIG")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, words = sys.argv[:split], sys.argv[split + 1:]
    if not words and not {"--help", "-h", "--version"} & set(own):
        command.exit_with("there is no command: give it after --, as in python -m engine.launch "
                          "--hosts=a,b -- run_classifier.py --do_train")
    command.run(functools.partial(main, words), define_flags(), usage=__doc__, argv=own)


if __name__ == "__main__":
    start()

"""The workers of a run, as processes on this machine. They begin with TensorFlow loaded."""

import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from conftest import ROOT

TESTS = os.path.join(ROOT, "tests")
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["workers_preload"])


class Ended(NamedTuple):
    """How a worker has ended."""
    status: int
    said: str  # on both streams


def free_addresses(count: int) -> List[str]:
    """Addresses on this machine, with ports that nothing uses."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def tf_config(addresses: Sequence[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": list(addresses)},
                       "task": {"type": "worker", "index": index}})


class Worker:
    """A process that calls `function` with arguments, in an environment of its own."""

    def __init__(self, directory, name: str, function: Callable, *arguments: Any,
                 environment: Optional[Dict[str, str]] = None):
        self._log = os.path.join(str(directory), f"{name}.log")
        os.environ.setdefault("PYTHONPATH", os.pathsep.join([ROOT, TESTS]))
        self._process = _processes.Process(
            target=_run, args=(self._log, environment or {}, function, arguments))
        self._process.start()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self._process.pid, number)

    def is_running(self) -> bool:
        return self._process.exitcode is None

    def end(self, seconds: float = 300) -> Ended:
        """Waits for the end; a worker that does not end is killed, and the test fails."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            raise AssertionError(f"a worker hangs: {self.said()}")
        return Ended(self._process.exitcode, self.said())

    def said(self) -> str:
        with open(self._log) as file:
            return file.read()


def start_command(directory, flags_of: Callable[[int], Dict[str, object]], count: int = 2,
                  module: str = "run_classifier",
                  addresses: Sequence[str] = ()) -> List[Worker]:
    """Starts a command on several workers, with the flags of each."""
    from commands import arguments
    addresses = addresses or free_addresses(count)
    return [Worker(directory, f"worker{index}", run_module, module, arguments(flags_of(index)),
                   environment={"TF_CONFIG": tf_config(addresses, index)})
            for index in range(count)]


def run_module(name: str, argv: List[str]) -> None:
    from engine import command
    module = importlib.import_module(name)
    command.run(module.main, module.define_flags(), usage="", argv=[name, *argv])


def wait_for(path: str, workers: Sequence[Worker]) -> None:
    """Waits until a file is there."""
    end = time.monotonic() + 300
    while not os.path.exists(path):
        assert time.monotonic() < end, [worker.said() for worker in workers]
        time.sleep(0.02)


def _run(log: str, environment: Dict[str, str], function: Callable, arguments) -> None:
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = ["worker"]
    function(*arguments)

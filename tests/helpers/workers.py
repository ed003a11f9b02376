"""The workers of a run, as processes on this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import processes
from commands import arguments


class Ended(NamedTuple):
    """How a worker has ended."""
    status: int
    said: str  # on both streams


def free_addresses(count: int) -> List[str]:
    """Addresses on this machine, with ports that nothing uses."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind(("", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in opened]


def tf_config(addresses: Sequence[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": list(addresses)},
                       "task": {"type": "worker", "index": index}})


class Worker:
    """`python ARGUMENTS...` as one of the workers at some addresses."""

    def __init__(self, directory, program: Sequence[str], addresses: Sequence[str], index: int):
        self._log = os.path.join(str(directory), f"worker{index}.log")
        with open(self._log, "a") as log:
            self._process = processes.start(
                program, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "",
                     "TF_CONFIG": tf_config(addresses, index)})

    def kill(self, number: int = signal.SIGKILL) -> None:
        self._process.send_signal(number)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self, seconds: float = 300) -> Ended:
        """Waits for the end; a worker that does not end is killed, and the test fails."""
        try:
            return Ended(self._process.wait(seconds), self.said())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"a worker hangs: {self.said()}") from None

    def said(self) -> str:
        with open(self._log) as file:
            return file.read()


def start_command(directory, program: Sequence[str], flags_of: Callable[[int], Dict[str, object]],
                  addresses: Sequence[str] = (), *, count: int = 2,
                  which: Optional[Sequence[int]] = None) -> List[Worker]:
    """Starts a program on several workers, with the flags of each.

    Args:
        addresses: of all of them, by default `count` free ones.
        which: the workers that are started, by default all.
    """
    addresses = addresses or free_addresses(count)
    return [Worker(directory, [*program, *arguments(flags_of(index))], addresses, index)
            for index in which or range(len(addresses))]


def wait_for(path: str, workers: Sequence[Worker]) -> None:
    """Waits until a file is there."""
    end = time.monotonic() + 300
    while not os.path.exists(path):
        assert time.monotonic() < end, [worker.said() for worker in workers]
        time.sleep(0.02)

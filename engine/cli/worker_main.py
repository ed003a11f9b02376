"""Runs one worker for `engine.launch`, on the worker's machine, and makes sure that it exits.

  python -m engine.cli.worker_main LOCAL_INDEX PROCESSES COMMAND...

It takes the worker's share of the machine's cards. Each byte on standard input is the number of a
signal for the worker. EOF on standard input means that the launcher or its connection died: the
worker is killed, so that no orphan trains on beside its replacement.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import List

from engine.cli import command
from engine.errors import UserError
from engine.workers import gpu_split

END_SECONDS = 30.0  # between SIGTERM and SIGKILL: a worker finishes a step and saves it


def main(arguments: List[str]) -> int:
    """Returns the worker's exit status; 128 + the signal's number if a signal ended it."""
    index, processes, *words = arguments
    try:
        gpu_split.take(os.environ, int(index), int(processes))
    except UserError as error:
        command.exit_with(error)
    worker = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL)
    threading.Thread(target=_pass_signals, args=(worker,), daemon=True).start()
    return status_of(worker.wait())


def status_of(code: int) -> int:
    """A shell's exit status for the return code of a `Popen`."""
    return code if code >= 0 else 128 - code


def _pass_signals(worker: subprocess.Popen) -> None:
    # Not through sys.stdin: the interpreter could not take its lock at exit.
    for byte in iter(lambda: os.read(0, 1), b""):
        worker.send_signal(byte[0])
    worker.terminate()
    try:
        worker.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # EOF on standard input does the work
    sys.exit(main(sys.argv[1:]))

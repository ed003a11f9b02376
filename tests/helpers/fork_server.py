"""A process with TensorFlow loaded, of which tests' programs are forks: see processes.py.

  python tests/helpers/fork_server.py SOCKET

Loading takes longer than most programs of tests. A fork is a process as any other, with arguments,
environment, streams, signals and an exit status of its own.
"""

import atexit
import gc
import importlib
import os
import runpy
import signal
import sys
import threading
import time
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Dict, List, NamedTuple, Optional

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What commands load when they first need it. Neither this nor the commands make a session or a
# thread of TensorFlow's when they are loaded.
_LOADED = ("jinja2", "scipy.stats", "sklearn.metrics", "numpy.random")


class Request(NamedTuple):
    """A program to run."""
    arguments: List[str]  # of Python
    directory: str
    environment: Dict[str, str]


def serve(connection: Connection) -> Request:
    """Forks for each request, and returns there; ends the process when the tests have ended."""
    while True:
        try:
            request = Request(*connection.recv())
        except EOFError:
            sys.exit(0)
        streams = [reduction.recv_handle(connection) for _ in range(3)]
        process_id = _fork_orphan()
        if not process_id:
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        connection.send(process_id)
        for stream in streams:
            os.close(stream)


def _fork_orphan() -> Optional[int]:
    """Forks a process whose parent has ended, so that the tests' process becomes its parent.

    Returns:
        Its number; in the new process None.
    """
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        between = os.getpid()
        process_id = os.fork()
        if not process_id:
            os.close(reading)
            os.close(writing)
            while os.getppid() == between:
                time.sleep(0.001)
            return None
        os.write(writing, str(process_id).encode())
        os._exit(0)
    os.waitpid(between, 0)
    os.close(writing)
    process_id = int(os.read(reading, 20))
    os.close(reading)
    return process_id


def run(request: Request) -> None:
    """Runs a program as Python does: `FILE ...`, `-m MODULE ...` or `-c CODE ...`."""
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["numpy.random"].seed()  # every process draws numbers of its own
    kind, *rest = request.arguments
    if kind == "-m":
        sys.argv, sys.path[0] = rest, request.directory
        sys.modules.pop(rest[0], None)  # it is run, whether or not it has been imported
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = request.arguments, os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


def end(status: int) -> None:
    """Ends the process as Python does, but for what Python frees: it takes longer than the rest."""
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        sys.exit(status)  # Python says it
    os._exit(status)


def main(socket: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this process
    sys.path[0] = ROOT
    flags_page = importlib.import_module("scripts.flags_page")
    for name in (*flags_page.commands(), *_LOADED):
        importlib.import_module(name)
    gc.freeze()  # what is loaded stays in the memory that forks share
    try:
        run(serve(Connection(int(socket))))
    except SystemExit as ended:
        if not isinstance(ended.code, (int, type(None))):
            raise
        end(ended.code or 0)
    end(0)


if __name__ == "__main__":
    main(sys.argv[1])

"""Python programs as processes: forks of one that has TensorFlow loaded, or new interpreters."""

import ctypes
import multiprocessing
import os
import re
import subprocess
import sys
import time
from multiprocessing import reduction
from typing import Any, Callable, Dict, Optional, Sequence

import fork_server

_PR_SET_CHILD_SUBREAPER = 36
# Beginnings of the names of variables that are read when Python or a library is loaded.
_READ_ON_LOADING = ("PYTHON", "LD_", "LANG", "LC_", "OMP_", "OPENBLAS_", "TF_CPP_", "TF_ENABLE_")
_ENVIRONMENT = dict(os.environ)  # of the server
# Code that runs a module with its arguments, which follow `-c` and this code.
RUN_MODULE = """
import runpy, sys
sys.argv.pop(0)
sys.modules.pop(sys.argv[0], None)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def start(arguments: Sequence[str], *, cwd: str = fork_server.ROOT,
          env: Optional[Dict[str, str]] = None, before: Optional[Callable[[], None]] = None,
          **streams: Any) -> subprocess.Popen:
    """Starts `python ARGUMENTS...`.

    It is a new interpreter if a variable asks for one that is read on loading, or if `before` is to
    be called in the process; else a fork of a process that has TensorFlow loaded.

    Args:
        arguments: a file, `-m` and a module, or `-c` and code; then those of the program.
        streams: stdin, stdout, stderr and other arguments of Popen.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "universal_newlines": True,
               **streams}
    environment = dict(os.environ if env is None else env)
    if before or _read_on_loading(environment) != _read_on_loading(_ENVIRONMENT):
        return subprocess.Popen([sys.executable, *arguments], cwd=cwd, env=environment,
                                preexec_fn=before, **streams)
    return _Fork([sys.executable, *arguments], cwd=cwd, env=environment, **streams)


def run(arguments: Sequence[str], *, input: Optional[str] = None,
        **options: Any) -> subprocess.CompletedProcess:
    """Starts a program as `start` does, and waits for its end."""
    process = start(arguments, stdin=subprocess.PIPE, **options)
    output, errors = process.communicate(input, timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def strike(number: int, when: str, after: float = 0.0) -> str:
    """Code that sends its own process a signal once an expression is true.

    A signal from the tests' process can come too late: it may be held up while the program goes on.

    Args:
        when: the expression, of `step_of`, `glob` and `os`.
        after: seconds that it waits then.
    """
    return f"""
import glob, os, sys, threading, time
sys.path.append({os.path.dirname(os.path.abspath(__file__))!r})
from processes import step_of

def strike():
    while not ({when}):
        time.sleep(0.005)
    time.sleep({after})
    os.kill(os.getpid(), {int(number)})

threading.Thread(target=strike, daemon=True).start()
"""


def wait_until(process: subprocess.Popen, condition: Callable[[], object]) -> None:
    """Waits until a condition holds; fails where the process ends before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def _read_on_loading(environment: Dict[str, str]) -> Dict[str, str]:
    return {name: value for name, value in environment.items()
            if name.startswith(_READ_ON_LOADING)}


def with_our_loading(environment: Dict[str, str]) -> Dict[str, str]:
    """The environment, with this process's values of variables that are read on loading.

    `start` forks only for such an environment.
    """
    return {**{name: value for name, value in environment.items()
               if not name.startswith(_READ_ON_LOADING)}, **_read_on_loading(_ENVIRONMENT)}


class _Server:
    """The process of which programs are forks. The first program starts it."""
    _only: Optional["_Server"] = None

    @classmethod
    def get(cls) -> "_Server":
        cls._only = cls._only or cls()
        return cls._only

    def __init__(self):
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            # Its streams are of the kind that programs have, and nothing goes through them.
            self._process = subprocess.Popen(
                [sys.executable, fork_server.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=_ENVIRONMENT, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE)

    def fork(self, request: fork_server.Request, streams: Sequence[int]) -> int:
        """Starts a program, as a child of this process; returns its number."""
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # to become the parent of an orphan
        self._connection.send(tuple(request))
        for stream in streams:
            reduction.send_handle(self._connection, stream, self._process.pid)
        process_id = self._connection.recv()
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return process_id


class _Fork(subprocess.Popen):
    """A Popen whose process is a fork of the server's: it differs in how it starts alone."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env,
                       startupinfo, creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite,
                       errread, errwrite, *others):
        streams = [theirs if theirs != -1 else own
                   for own, theirs in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = _Server.get().fork(
            fork_server.Request(list(args[1:]), os.path.abspath(str(cwd)), env), streams)
        self._child_created = True
        for theirs, ours in ((p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread)):
            if -1 not in (theirs, ours):
                os.close(theirs)
        self._closed_child_pipe_fds = True


def step_of(output_dir) -> int:
    """The newest checkpoint's, by its name: another process may be removing its files."""
    try:
        with open(os.path.join(str(output_dir), "checkpoint")) as file:
            return int(re.match(r'model_checkpoint_path: "model\.ckpt-(\d+)"', file.read()).group(1))
    except FileNotFoundError:
        return 0

"""Commands as forks of this process, which has TensorFlow loaded."""

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

from benchmarks import report
from engine.cli import command
from engine.errors import USER_ERROR_STATUS

SECONDS, RESIDENT_BYTES = 60.0, 2e9  # that a command may take
MOST_BYTES = 8 << 30  # of its data: more is refused by the system
STOP_SECONDS = 1.0


class Ended(NamedTuple):
    """How a command has ended."""
    status: int  # negative after a signal
    said: str
    seconds: float
    peak: float  # bytes

    def wrong(self) -> str:
        """What no command may do, whatever its files hold; "" if it has done none of it."""
        if self.seconds > SECONDS or self.peak > RESIDENT_BYTES:
            return f"{self.seconds:.0f} s, {self.peak / 1e9:.1f} GB"
        if "Traceback" in self.said or self.status not in (0, USER_ERROR_STATUS):
            return f"status {self.status}, a traceback or a crash"
        lines = self.said.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        return "not one line at the end" if self.status and errors != lines[-1:] else ""


def run(module: str, arguments: Sequence[str], log_path: str, *, cwd: str,
        before: Callable[[], object] = lambda: None, strike: Optional[Tuple[int, float]] = None
        ) -> Ended:
    """Runs a command, and kills it and its processes if it takes too long.

    Args:
        cwd: the folder it runs in, to which its relative paths belong.
        before: what the fork calls before the command.
        strike: a signal that it gets, and after how many seconds.
    """
    start = time.time()
    sys.stdout.flush()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        _become(module, arguments, log_path, cwd, before)
    with contextlib.suppress(OSError):  # it has done so itself, and maybe ended
        os.setpgid(process, process)
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        if strike and time.time() - start > strike[1]:
            os.killpg(process, strike[0])
            if strike[0] == signal.SIGSTOP:
                time.sleep(STOP_SECONDS)
                os.killpg(process, signal.SIGCONT)
            strike = None
        if time.time() - start > SECONDS:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.01)
    with open(log_path, encoding="utf-8", errors="replace") as log:
        said = log.read()
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Ended(code, said, time.time() - start, usage.ru_maxrss * 1024.0)


def _become(module: str, arguments: Sequence[str], log_path: str, cwd: str,
            before: Callable[[], object]) -> None:
    """Runs a command in this process, and ends the process with its status."""
    status = 1
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.path.insert(0, report.ROOT)
        os.chdir(cwd)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        before()
        loaded = importlib.import_module(module)
        command.run(loaded.main, loaded.define_flags(), usage="", argv=[module, *arguments])
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

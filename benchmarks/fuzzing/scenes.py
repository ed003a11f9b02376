"""Commands with all that they read, run as forks of this process, which has TensorFlow loaded."""

import contextlib
import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from concurrent import futures
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from benchmarks import report
from engine.cli import command
from engine.errors import USER_ERROR_STATUS

SECONDS, RESIDENT_BYTES = 60.0, 2e9  # that a command may take
MOST_BYTES = 8 << 30  # of its data: more is refused by the system
Flags = Dict[str, Any]


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


class Scene(NamedTuple):
    """A command that succeeds in a few seconds, if its files are not damaged.

    They are those of a folder, which stands in flags as {}.
    """
    name: str
    module: str
    flags: Flags
    folder: str  # from which it is copied
    files: Tuple[str, ...]  # those to damage: paths in the folder, or beginnings of them
    # Beginnings of the names of files with checksums, or that are made again: if one is damaged and
    # the command succeeds, the results are as without the damage.
    checked: Tuple[str, ...] = ()
    results: Tuple[str, ...] = ()

    def arguments(self, folder: str) -> List[str]:
        """The command's arguments, for files in a folder."""
        return [f"--{name}={str(value).replace('{}', folder)}"
                for name, value in self.flags.items()]

    def copy_to(self, folder: str) -> str:
        """Replaces the folder by a copy of the files that the flags name; returns its path."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name in {str(value).split("/")[1] for value in self.flags.values()
                     if str(value).startswith("{}/")}:
            path, copy = os.path.join(self.folder, name), os.path.join(folder, name)
            if os.path.isdir(path):
                shutil.copytree(path, copy)
            elif os.path.exists(path):
                shutil.copy(path, copy)
        return folder

    def run(self, folder: str, arguments: Sequence[str] = (), *,
            before: Callable[[], object] = lambda: None, signals: Sequence[Tuple[float, int]] = ()
            ) -> Ended:
        """Runs the command in a folder, and kills it and its processes if it takes too long.

        Args:
            arguments: in place of the scene's own.
            before: what the fork calls before the command.
            signals: after how many seconds it gets which, in order.
        """
        log, start = os.path.join(os.path.dirname(folder), "log"), time.time()
        sys.stdout.flush()
        process = os.fork()
        if not process:
            self._become(folder, arguments or self.arguments(folder), log, before)
        with contextlib.suppress(OSError):  # it has done so itself, and maybe ended
            os.setpgid(process, process)
        coming, ended = [*signals, (SECONDS, signal.SIGKILL)], 0
        while not ended:
            time.sleep(0.01)
            ended, status, usage = os.wait4(process, os.WNOHANG)
            if not ended and coming and time.time() - start > coming[0][0]:
                os.killpg(process, coming.pop(0)[1])
        with open(log, encoding="utf-8", errors="replace") as file:
            said = file.read()
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return Ended(code, said, time.time() - start, usage.ru_maxrss * 1024.0)

    def _become(self, folder: str, arguments: Sequence[str], log: str,
                before: Callable[[], object]) -> None:
        """Runs the command in this process, and ends the process with its status."""
        status = 1
        try:
            os.setpgid(0, 0)
            with open(log, "w") as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
            sys.path.insert(0, report.ROOT)
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            before()
            loaded = importlib.import_module(self.module)
            command.run(loaded.main, loaded.define_flags(), usage="", argv=[self.module, *arguments])
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def prepare(folder: str) -> List[Scene]:
    """Makes the scenes' files in a folder, whatever was there, most of them by commands."""
    shutil.rmtree(folder, ignore_errors=True)
    # Making them starts TensorFlow's threads, and the commands are forks of this process.
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as fork:
        return fork.submit(_make, os.path.realpath(folder)).result()


def _make(folder: str) -> List[Scene]:
    os.dup2(2, 1)  # what commands print, among what they say
    return importlib.import_module("benchmarks.fuzzing.toy_scenes").make(folder)

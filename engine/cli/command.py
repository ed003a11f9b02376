"""Runs a command: parses its flags and turns errors into exit statuses.

A command defines its flags in a `FlagValues` of its own when it runs, not at import, so that its
module can be imported by programs with other flags.
"""

import contextlib
import io
import itertools
import os
import signal
import sys
import warnings
from typing import Callable, Dict, List, Optional, Union

from absl import flags

from engine import interruption, limits, log
from engine.disk import files
from engine.errors import USER_ERROR_STATUS, UserError
from engine.version import VERSION
from engine.workers import cluster

# Global, because an error leaves all functions that know the other workers, which must be notified.
_at_exit: List[Callable[[int, str], None]] = []
_OWN_TOPIC = "This command"


def at_exit(action: Callable[[int, str], None]) -> None:
    """Registers `action`, to be called once, with the exit status and the reason, when a command ends."""
    _at_exit.append(action)


def run(main: Callable[[flags.FlagValues], None],
        flag_values: flags.FlagValues,
        *,
        usage: str,
        argv: Optional[List[str]] = None) -> None:
    """Parses `argv` into `flag_values`, calls `main` with them, and exits the process on errors.

    Exit status: 0; 2, after one line on standard error, for bad input (an unknown flag, a bad
    value, a `UserError`), for a disk that is full, read-only or faulty, and if memory, threads or open
    files run out; 143 after SIGTERM; 130
    after Ctrl-C; cluster.PEER_LOST_STATUS. A bug gets a traceback. The other workers of
    the run are notified, and exit, too.
    """
    argv = sys.argv if argv is None else argv
    files.output_folders.clear()
    if not sys.warnoptions:
        # Libraries' warnings are for programmers, and would bury the command's own messages.
        warnings.simplefilter("ignore")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # like all input, whatever the locale
    try:
        _print_help_or_version(argv, usage, flag_values)
        _parse(argv, flag_values)
        with interruption.InterruptNow():
            _call(main, flag_values)
        _leave(0, "")
    except flags.Error as error:
        exit_with(error)
    except BrokenPipeError:
        # The reader of our output has exited, as `head` does: not an error. Without this, the
        # interpreter would fail to flush its buffer at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(128 + signal.SIGPIPE, "nobody reads its output any more")
        sys.exit(128 + signal.SIGPIPE)
    except interruption.Interrupted as interrupted:
        _leave(128 + interrupted.signal_number, str(interrupted))
        log.last(str(interrupted))
        # Threads may still be building the graph; shutting the interpreter down would crash.
        os._exit(128 + interrupted.signal_number)
    except cluster.PeerLost as error:
        exit_with(error, cluster.PEER_LOST_STATUS)
    except Exception as error:
        for path in itertools.filterfalse(os.path.isdir, files.output_folders):
            exit_with(f"{files.output_folders[path]}={path} was removed or renamed while the command "
                      "ran: put it back, and the same command goes on with what it holds")
        if isinstance(error, UserError):
            exit_with(error)
        line = limits.explained(error)
        if line:
            exit_with(line)
        if not files.disk_errno(error):
            _leave(1, f"{type(error).__name__}: {error}")
            raise
        exit_with(UserError(f"{_described(error)}; existing files are intact: fix this and "
                            "run the same command again"))


def _parse(argv: List[str], values: flags.FlagValues) -> None:
    _require_utf8(argv[1:])
    try:
        positional = values(argv)[1:]
    except UnicodeDecodeError as error:
        raise UserError(f"a file that --flagfile names is not UTF-8: {error}") from error
    if positional:
        raise UserError(f"Unexpected argument {positional[0]!r}: this command takes flags only "
                        "(--name=value).")


def _call(main: Callable[[flags.FlagValues], None], values: flags.FlagValues) -> None:
    # Workers share the work of a training, and of nothing else.
    if not ("heartbeat_timeout" in values and values.do_train):
        cluster.run_on_chief(cluster.from_environment())
    main(values)


def _leave(status: int, why: str) -> None:
    while _at_exit:
        _at_exit.pop()(status, why)


def _print_help_or_version(argv: List[str], usage: str, values: flags.FlagValues) -> None:
    """Prints the help or the version, and exits, if an argument asks for it."""
    if {"--help", "-help", "-h", "--helpfull"}.intersection(argv[1:]):
        print(f"{usage}\n\n{_help(values)}", flush=True)
        sys.exit(0)
    if "--version" in argv[1:]:
        print(VERSION, flush=True)
        sys.exit(0)


def _require_utf8(arguments: List[str]) -> None:
    """Raises a UserError for a name that no record, message or file of TensorFlow could hold."""
    with contextlib.suppress(FileNotFoundError):  # the working directory is removed
        arguments = [*arguments, f"the working directory {os.getcwd()}"]
    for argument in filter(files.HALF_CHARACTER.search, arguments):
        raise UserError(f"{argument} is not UTF-8: rename it, or give a link whose name is")


def _help(values: flags.FlagValues) -> str:
    """The flags by topic: first those of the command itself, last those of absl.

    A topic is that of the settings class that defines a flag, or of its module (HELP_TOPIC).
    """
    topics: Dict[str, str] = {_OWN_TOPIC: ""}
    for module in sorted(values.flags_by_module_dict(), key=lambda name: name == "absl.flags"):
        topic = module  # settings classes define flags under their topics
        if module in sys.modules or module == sys.argv[0]:
            topic = getattr(sys.modules.get(module), "HELP_TOPIC", _OWN_TOPIC)
        if module == "absl.flags":
            topic = "Other"
        _, _, shown = values.module_help(module).strip("\n").partition("\n")
        topics[topic] = topics.get(topic, "") + shown + "\n"
    return "\n".join(f"{topic}:\n{shown}" for topic, shown in topics.items() if shown)


def exit_with(error: Union[Exception, str], status: int = USER_ERROR_STATUS) -> None:
    """Prints the error in one line, whatever the message holds, and exits."""
    line = log.visible(" ".join(str(error).split()))
    _leave(status, line)
    files.remove_empty_directories()
    log.last(f"error: {line}")
    sys.exit(status)


def _described(error: Exception) -> str:
    """A disk error in one line: the path and the reason."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error).splitlines()[0][:300]

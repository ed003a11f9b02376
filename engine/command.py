"""From a command line to a call: parses flags, turns errors into exit statuses.

Flags live in a private `FlagValues` that the command makes when it runs, never
at import: people import our modules from programs with flags of their own.
"""

import os
import signal
import sys
import warnings
from typing import Callable, List, Optional

from absl import flags

from engine import interruption
from engine.errors import UserError

USER_ERROR_STATUS = 2


def run(main: Callable[[flags.FlagValues], None],
        flag_values: flags.FlagValues,
        *,
        usage: str,
        argv: Optional[List[str]] = None) -> None:
    """Parses `argv` into `flag_values` and calls `main` with them; exits the process.

    Exit status: 0, or 2 after one line on standard error where the input is
    wrong (an unknown or ill-valued flag, a `UserError`), or 143 or 130 where SIGTERM
    or Ctrl-C ended it. A bug gets a traceback.
    """
    argv = sys.argv if argv is None else argv
    if not sys.warnoptions:
        # What libraries tell programmers would drown what we tell people.
        warnings.simplefilter("ignore")
    try:
        if any(argument in ("--help", "-help", "-h", "--helpfull") for argument in argv[1:]):
            print("{}\n\nFlags:\n{}".format(usage, flag_values.get_help()), flush=True)
            sys.exit(0)
        positional = flag_values(argv)[1:]
        if positional:
            raise UserError(
                "Unexpected argument {!r}: this command takes flags only (--name=value).".format(
                    positional[0]))
        with interruption.Raised():
            main(flag_values)
    except (flags.Error, UserError) as error:
        exit_with(error)
    except BrokenPipeError:
        # Who reads our output has gone, as `head` does: not an error of ours. What is left in
        # the buffer has nowhere to go when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except interruption.Interrupted as interrupted:
        sys.stderr.write(f"{interrupted}\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # Threads may be building the graph: an interpreter that is taken down under them crashes.
        os._exit(128 + interrupted.signal_number)


def exit_with(error: Exception) -> None:
    """Says what the user can mend, in one line whatever the message holds, and exits."""
    sys.stderr.write("error: {}\n".format(" ".join(str(error).split())))
    sys.exit(USER_ERROR_STATUS)

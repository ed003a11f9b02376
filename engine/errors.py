"""The exception for bad input."""

USER_ERROR_STATUS = 2  # the exit status of a command that it ends


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what to do about it.

    A command prints the line and exits with USER_ERROR_STATUS (`engine.cli.command`). Any other
    exception is a bug and gets a traceback.
    """

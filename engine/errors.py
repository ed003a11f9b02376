"""The exception for bad input."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what to do about it.

    A command prints the line and exits with status 2 (`engine.command`). Any other exception is
    a bug and gets a traceback.
    """

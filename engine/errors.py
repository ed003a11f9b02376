"""The one exception that is the user's to mend. Knows nothing else."""


class UserError(Exception):
    """Bad input: one line that says what is wrong, where, and what to do.

    A command prints the line and exits with status 2 (`engine.command`); every
    other exception is a bug and keeps its traceback.
    """

"""Messages for people: plain lines on standard error, above the progress bar if there is one."""

import sys

from tqdm import tqdm


_is_quiet = False


def quiet() -> None:
    """From now on prints only what must not be overlooked: another worker prints the rest."""
    global _is_quiet
    _is_quiet = True


def is_quiet() -> bool:
    """Whether `info` prints nothing."""
    return _is_quiet


def info(line: str) -> None:
    """Prints a line on standard error."""
    if not _is_quiet:
        _print(line)


def warn(line: str) -> None:
    """Prints a line that must not be overlooked."""
    _print(f"WARNING: {line}")


def _print(line: str) -> None:
    tqdm.write(line, file=sys.stderr)  # hides the progress bar while it writes
    sys.stderr.flush()

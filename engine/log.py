"""Messages for people: plain lines on standard error, above the progress bar if there is one."""

import sys

from tqdm import tqdm


def info(line: str) -> None:
    """Prints a line on standard error."""
    tqdm.write(line, file=sys.stderr)  # hides the progress bar while it writes
    sys.stderr.flush()


def warn(line: str) -> None:
    """Prints a line that must not be overlooked."""
    info(f"WARNING: {line}")

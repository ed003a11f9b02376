"""What a run says to people: plain lines on standard error, above a bar if there is one."""

import sys

from tqdm import tqdm


def info(line: str) -> None:
    tqdm.write(line, file=sys.stderr)  # takes the bar off the screen while it writes
    sys.stderr.flush()


def warn(line: str) -> None:
    """For what must not be overlooked."""
    info(f"WARNING: {line}")

"""What a run says to people: plain lines on standard error."""

import sys


def info(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """For what must not be overlooked."""
    info(f"WARNING: {line}")

"""Log messages: plain lines on standard error, above the progress bar if there is one."""

import contextlib
import numbers
import re
import sys
from typing import Mapping

from tqdm import tqdm

# Control characters, characters that change the direction of text, and unpaired surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# A process-wide switch, like standard error: another worker prints the same lines.
_is_quiet = False


def visible(text: str) -> str:
    """The text in one line, with control characters as escapes, such as \\x1b."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def brief(value: object) -> str:
    """The value in at most 60 visible characters."""
    text = visible(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def quiet() -> None:
    """Silences `info`: another worker prints the same lines."""
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
    """Prints a warning on standard error."""
    _print(f"WARNING: {line}")


def last(line: str = "") -> None:
    """Prints the last line of a process and flushes both streams; a stream that cannot be written is passed over."""
    for stream, text in ((sys.stdout, ""), (sys.stderr, f"{visible(line)}\n" if line else "")):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, if it was closed before the start
            stream.write(text)
            stream.flush()


def results(metrics: Mapping[str, float]) -> None:
    """Prints the metrics of a model, with five digits; a file has all of them."""
    info("***** Eval results *****")
    for name, value in metrics.items():
        info(f"  {name} = {value if isinstance(value, numbers.Integral) else format(value, '.5g')}")


def _print(line: str) -> None:
    tqdm.write(visible(line), file=sys.stderr)  # hides the progress bar while it writes
    sys.stderr.flush()

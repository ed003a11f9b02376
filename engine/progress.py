"""Shows the progress of a run: a bar on a terminal, log lines at intervals elsewhere."""

import numbers
import os
import sys
import time
from typing import Optional

from tqdm import tqdm

from engine import log

LINE_SECONDS = 10.0  # between log lines
BAR_SECONDS = 0.5  # between changes of the text beside a bar
_SHORTEST_SECONDS = 0.1  # shorter times are not logged


class Counter:
    """Shows the progress of a task, and logs a closing line with the time it took.

    Use it as a context manager. The closing line comes as soon as the total is reached, at the
    latest at the end; there is none after an exception.

    Args:
        description: names the task, such as "Preparing train.tsv".
        unit: the name of what is counted, in the plural, such as "examples".
        total: the count at the end, if known.
        contents: the name of parts that units have any number of, such as "texts", to show their rate, too.
    """

    def __init__(self, description: str, *, unit: str, total: Optional[int] = None, contents: str = ""):
        self._description = description
        self._unit = unit
        self._total = total
        self._contents = contents
        self._count = self._num_contents = 0
        self._is_closed = False

    def __enter__(self) -> "Counter":
        self._start = self._last_line_time = time.time()
        self._bar = bar(desc=log.visible(self._description), total=self._total, unit=f" {self._unit}")
        return self

    def advance(self, count: int, *, contents: int = 0) -> None:
        """Adds `count` to the units done, and `contents` of them or of the next ones."""
        self._count += count
        self._num_contents += contents
        if contents:
            self._bar.set_postfix_str(self._rate_of_contents(), refresh=False)
        self._bar.update(count)
        if self._count == self._total:
            self._close()
        elif self._bar.disable and time.time() - self._last_line_time > LINE_SECONDS:
            self._log_line()

    def __exit__(self, kind, error, traceback) -> None:
        self._bar.close()
        if error is None and not self._is_closed:
            self._close()

    def _close(self) -> None:
        self._bar.close()
        self._is_closed, seconds = True, self._seconds()
        took = f" in {seconds:.1f} s, {self._rate()}" if seconds >= _SHORTEST_SECONDS else ""
        log.info(f"{self._description}: {counted(self._count, self._unit)}{took}")

    def _log_line(self) -> None:
        done, left = f"{self._count:,}", ""
        if self._total:
            done += f"/{self._total:,}"
        if self._total and self._count:
            seconds = self._seconds() * (self._total / self._count - 1)
            left = f", {self._bar.format_interval(seconds)} left"
        log.info(f"{self._description}: {done} {self._unit}, {self._rate()}{left}")
        self._last_line_time = time.time()

    def _seconds(self) -> float:
        return max(time.time() - self._start, 1e-9)

    def _rate(self) -> str:
        return ", ".join(filter(None, (
            rate(self._count / self._seconds(), self._unit), self._rate_of_contents())))

    def _rate_of_contents(self) -> str:
        return rate(self._num_contents / self._seconds(), self._contents) if self._num_contents else ""


def counted(count: float, unit: str) -> str:
    """A number of units, whose name is given in the plural: "1,234 texts" or "1 text"."""
    number = format(count, "," if isinstance(count, numbers.Integral) else "g")
    return f"{number} {unit[:-1] if count == 1 else unit}"


def rate(per_second: float, unit: str) -> str:
    """A rate, such as "1,234 examples/s" or "12.3 examples/s"."""
    return f"{per_second:,.{0 if per_second >= 100 else 1}f} {unit}/s"


def bar(**arguments) -> tqdm:
    """A progress bar that vanishes when closed; disabled unless standard error is a terminal with room."""
    # `script` may make a terminal of 0 x 0, and tqdm draws nothing in two lines.
    has_room = sys.stderr.isatty() and min(os.get_terminal_size(sys.stderr.fileno())) > 2
    return tqdm(leave=False, disable=log.is_quiet() or not has_room, dynamic_ncols=True,
                miniters=0, **arguments)  # 0: drawn for contents alone, too

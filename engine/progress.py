"""Shows the progress of a run: a bar on a terminal, log lines at intervals elsewhere."""

import numbers
import os
import sys
import time
from typing import Optional, Tuple

from tqdm import tqdm

from engine import log

LINE_SECONDS = 10.0  # between log lines
BAR_SECONDS = 0.5  # between changes of the text beside a bar
_SHORTEST_SECONDS = 0.1  # shorter times are not logged


class Counter:
    """Shows the progress of a task, and logs a closing line with the time it took.

    Use it as a context manager. The closing line comes as soon as the total is reached, at the
    latest at the end; there is none after an exception. Until then, rates and the time left leave out
    the first part, which may build a graph.

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
        self._first: Optional[Tuple[float, int, int]] = None  # the time and the counts after the first part

    def __enter__(self) -> "Counter":
        self._start = self._last_line_time = time.time()
        done = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}" if self._total else f"{{n_fmt}} {self._unit}"
        self._bar = bar(desc=log.visible(self._description), total=self._total,
                        bar_format=f"{{desc}}: {done}{{postfix}}")
        return self

    def advance(self, count: int, *, contents: int = 0) -> None:
        """Adds `count` to the units done, and `contents` of them or of the next ones."""
        self._count += count
        self._num_contents += contents
        self._bar.set_postfix_str(self._speed(), refresh=False)
        self._bar.update(count)
        self._first = self._first or (time.time(), self._count, self._num_contents)
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
        self._is_closed, seconds = True, max(time.time() - self._start, 1e-9)
        rates = self._rates(seconds, self._count, self._num_contents)
        took = f" in {seconds:.1f} s, {rates}" if seconds >= _SHORTEST_SECONDS else ""
        log.info(f"{self._description}: {counted(self._count, self._unit)}{took}")

    def _log_line(self) -> None:
        done = f"{self._count:,}" + (f"/{self._total:,}" if self._total else "")
        log.info(", ".join(filter(None, (f"{self._description}: {done} {self._unit}", self._speed()))))
        self._last_line_time = time.time()

    def _speed(self) -> str:
        """The rates and the time left since the first part; "" if nothing is done since."""
        start, count, num_contents = self._first or (0.0, self._count, self._num_contents)
        seconds, done = max(time.time() - start, 1e-9), self._count - count
        left = self._bar.format_interval(seconds * (self._total - self._count) / done) + " left" \
            if self._total and done else ""
        return ", ".join(filter(None, (self._rates(seconds, done, self._num_contents - num_contents), left)))

    def _rates(self, seconds: float, count: int, num_contents: int) -> str:
        counts = ((count, self._unit), (num_contents, self._contents))
        return ", ".join(rate(number / seconds, unit) for number, unit in counts if number)


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

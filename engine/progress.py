"""How far a run is: a bar on a terminal, plain lines at intervals elsewhere."""

import os
import sys
import time
from typing import Optional

from tqdm import tqdm

from engine import log

LINE_SECONDS = 10.0  # between lines, where there is no terminal
BAR_SECONDS = 0.5  # between changes of what stands beside a bar


class Counter:
    """Says how much of a long work is done, and in one closing line how long it took.

    Use it as a context manager; a work that fails has no closing line.

    Args:
        description: the work, "Preparing train.tsv".
        unit: what is counted, in the plural, "examples".
        total: how many there will be, where that is known.
    """

    def __init__(self, description: str, *, unit: str, total: Optional[int] = None):
        self._description = description
        self._unit = unit
        self._total = total
        self._count = 0

    def __enter__(self) -> "Counter":
        self._start = self._said = time.time()
        self._bar = bar(desc=self._description, total=self._total, unit=f" {self._unit}")
        return self

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._count += count
        self._bar.update(count)
        if self._bar.disable and time.time() - self._said > LINE_SECONDS:
            self._say()

    def __exit__(self, kind, error, traceback) -> None:
        self._bar.close()
        if error is None:
            seconds = time.time() - self._start
            log.info(f"{self._description}: {self._count:,} {self._unit} in {seconds:.1f} s, "
                     f"{self._rate():,.1f} {self._unit}/s")

    def _say(self) -> None:
        done, left = f"{self._count:,}", ""
        if self._total:
            done += f"/{self._total:,}"
            left = f", {clock((self._total - self._count) / max(self._rate(), 1e-9))} left"
        log.info(f"{self._description}: {done} {self._unit}, "
                 f"{self._rate():,.1f} {self._unit}/s{left}")
        self._said = time.time()

    def _rate(self) -> float:
        return self._count / max(time.time() - self._start, 1e-9)


def bar(**arguments) -> tqdm:
    """A bar that goes when it is closed; disabled where standard error is no terminal."""
    return tqdm(leave=False, disable=not _has_place(), dynamic_ncols=True, **arguments)


def _has_place() -> bool:
    # Some terminals, of containers say, are 0 characters wide.
    return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0


def clock(seconds: float) -> str:
    """hours:minutes:seconds, 00:01:30."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"

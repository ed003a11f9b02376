"""How fast a served model is on this machine: a table for the log and for the export's model card."""

import os
import re
import time
from typing import List, NamedTuple

import numpy as np

from engine import log
from engine.disk import files
from runs import report
from serving.model import Deadline, Version

_LENGTHS = (16, 32, 128)  # tokens
_SECONDS = 2.0  # for each figure
_LEAST_COUNT = 20  # of answers behind a median
_PATIENCE = 600.0  # seconds for an answer

_TITLE = "## Speed\n"
_SECTION = re.compile(rf"{_TITLE}.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class Speed(NamedTuple):
    """The model with texts of one length, without HTTP and tokenization."""
    length: int  # tokens, [CLS] and [SEP] included
    median: float  # seconds to the answer for a text that is alone
    percentile_95: float
    throughput: float  # texts per second while many wait


def measure(version: Version) -> List[Speed]:
    """The speed at each length that the model reads."""
    lengths = sorted({min(length, version.max_seq_length) for length in _LENGTHS})
    return [Speed(length, *_latency(version, length), _throughput(version, length))
            for length in lengths]


def describe(version: Version, speeds: List[Speed]) -> str:
    """A Markdown table, with the device and the versions of the packages."""
    made = [f"{package} {number}" for package, number in report.environment().items()]
    return "\n".join([
        "| tokens of a text | median, ms | 95 %, ms | texts/s, at most |",
        "| ---: | ---: | ---: | ---: |",
        *(f"| {each.length} | {each.median * 1e3:.3g} | {each.percentile_95 * 1e3:.3g} | "
          f"{each.throughput:,.3g} |" for each in speeds),
        "",
        "Time to the answer for one text, and the rate while many wait, without HTTP and "
        f"tokenization, on {version.devices.describe()}, computed by {version.engine}, with "
        f"{', '.join(made)}.\n"])


def write(version: Version) -> None:
    """Measures, logs the table and puts it into the model card of an export."""
    table = describe(version, measure(version))
    for line in table.splitlines():
        log.info(line)
    if not version.card:
        log.info(f"{os.path.dirname(version.card_file)} is no export: it has no model card to keep "
                 "the figures in")
        return
    card = _SECTION.sub("", version.card).rstrip("\n")
    files.write_text(version.card_file, f"{card}\n\n{_TITLE}\n{table}")
    log.info(f"Written into {version.card_file}")


def _latency(version: Version, length: int) -> List[float]:
    times, end = [], time.perf_counter() + _SECONDS
    while len(times) < _LEAST_COUNT or time.perf_counter() < end:
        start = time.perf_counter()
        Deadline(_PATIENCE).wait(version.submit_sample(1, length))
        times.append(time.perf_counter() - start)
    return [float(np.percentile(times, share)) for share in (50, 95)]


def _throughput(version: Version, length: int) -> float:
    """Always as many requests wait as fill a batch of each session twice."""
    waiting, size, count = [], max(1, version.tokens_at_a_time // length), 0
    start = time.perf_counter()
    while time.perf_counter() < start + _SECONDS:
        while len(waiting) < 4:
            waiting.append(version.submit_sample(size, length))
        Deadline(_PATIENCE).wait(waiting.pop(0))
        count += size
    for future in waiting:
        Deadline(_PATIENCE).wait(future)
        count += size
    return count / (time.perf_counter() - start)

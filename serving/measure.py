"""How fast a served model is on this machine: a table for the log and for the export's model card."""

import re
import time
from typing import List, NamedTuple

import numpy as np

from engine import log
from engine.disk import files
from runs import report
from serving import batcher
from serving.model import ServedModel

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


def measure(model: ServedModel) -> List[Speed]:
    """The speed at each length that the model reads."""
    lengths = sorted({min(length, model.max_seq_length) for length in _LENGTHS})
    return [Speed(length, *_latency(model, length), _throughput(model, length))
            for length in lengths]


def describe(model: ServedModel, speeds: List[Speed]) -> str:
    """The table, in Markdown, with what it was measured on."""
    made = [f"{name} {version}" for name, version in report.environment().items()]
    return "\n".join([
        "| tokens of a text | median, ms | 95 %, ms | texts/s, at most |",
        "| ---: | ---: | ---: | ---: |",
        *(f"| {each.length} | {each.median * 1e3:.3g} | {each.percentile_95 * 1e3:.3g} | "
          f"{each.throughput:,.3g} |" for each in speeds),
        "",
        "Time to the answer for one text, and the rate while many wait, without HTTP and "
        f"tokenization, on {model.describe_devices()}, with {', '.join(made)}.\n"])


def write(model: ServedModel) -> None:
    """Measures, logs the table and puts it into the model card of an export."""
    table = describe(model, measure(model))
    for line in table.splitlines():
        log.info(line)
    if not model.card:
        log.info(f"{model.folder} is no export: it has no model card to keep the figures in")
        return
    card = _SECTION.sub("", model.card).rstrip("\n")
    files.write_text(model.card_file, f"{card}\n\n{_TITLE}\n{table}")
    log.info(f"Written into {model.card_file}")


def _latency(model: ServedModel, length: int) -> List[float]:
    times, end = [], time.perf_counter() + _SECONDS
    while len(times) < _LEAST_COUNT or time.perf_counter() < end:
        start = time.perf_counter()
        batcher.wait(model.submit_sample(1, length), time.monotonic() + _PATIENCE)
        times.append(time.perf_counter() - start)
    return [float(np.percentile(times, share)) for share in (50, 95)]


def _throughput(model: ServedModel, length: int) -> float:
    """Always as many requests wait as fill a batch of each session twice."""
    waiting, size, count = [], max(1, model.tokens_at_a_time // length), 0
    start = time.perf_counter()
    while time.perf_counter() < start + _SECONDS:
        while len(waiting) < 4:
            waiting.append(model.submit_sample(size, length))
        batcher.wait(waiting.pop(0), time.monotonic() + _PATIENCE)
        count += size
    for future in waiting:
        batcher.wait(future, time.monotonic() + _PATIENCE)
        count += size
    return count / (time.perf_counter() - start)

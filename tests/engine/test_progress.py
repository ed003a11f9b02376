"""What a person sees of a long work: a bar on a terminal, and lines where there is none."""

import fcntl
import itertools
import math
import os
import re
import struct
import sys
import termios
import threading
import types

import numpy as np
import pytest

from conftest import cpu_devices
from engine import log, progress
from engine.training import step_hook
from engine.training.throughput import Throughput
from trainings import settings, train

import tensorflow.compat.v1 as tf


class Terminal:
    """A pseudo-terminal in the place of standard error; what it was sent is in `text`."""

    def __init__(self, monkeypatch, lines=24, columns=120):
        self._screen, end = os.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream = os.fdopen(end, "w")
        self._received = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        monkeypatch.setattr(sys, "stderr", self.stream)

    def _read(self):
        try:
            while True:
                self._received += os.read(self._screen, 4096)
        except OSError:  # the other end is closed
            os.close(self._screen)

    def close(self) -> str:
        """Returns all that it was sent."""
        self.stream.close()
        self._reader.join()
        return self._received.decode()


def screen(text: str):
    """The lines that stand on the screen in the end: what follows a \\r replaces what was there."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part):]
        lines.append(shown.rstrip())
    return lines


@pytest.fixture
def clock(monkeypatch):
    """Lets so many seconds pass between any two looks at the clock."""
    def install(seconds):
        times = itertools.count(0.0, seconds)
        for module in (progress, step_hook):
            monkeypatch.setattr(module, "time", types.SimpleNamespace(time=lambda: next(times)))
    return install


def test_without_a_terminal_a_work_has_lines_at_intervals_and_a_closing_one(clock, capsys):
    clock(11)
    with progress.Counter("Preparing train.tsv", unit="examples") as count:
        count.advance(1000)
        count.advance(500)
    with progress.Counter("Scoring", unit="examples", total=3000) as count:
        for _ in range(3):
            count.advance(1000)
        log.info("what was made of them")
    patterns = [
        r"Preparing train\.tsv: 1,000 examples",
        r"Preparing train\.tsv: 1,500 examples, [\d,.]+ examples/s",
        r"Preparing train\.tsv: 1,500 examples in \d+\.\d s, [\d,.]+ examples/s",
        r"Scoring: 1,000/3,000 examples",
        r"Scoring: 2,000/3,000 examples, [\d,.]+ examples/s, \d\d:\d\d left",
        r"Scoring: 3,000 examples in \d+\.\d s, [\d,.]+ examples/s", "what was made of them"]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(patterns)
    for line, pattern in zip(lines, patterns):
        assert re.fullmatch(pattern, line)


def test_a_short_work_has_the_closing_line_alone_and_one_that_fails_has_none(clock, capsys):
    clock(0.001)
    with progress.Counter("Scoring", unit="examples") as count:
        count.advance(1)
    with pytest.raises(ValueError), progress.Counter("Scoring", unit="examples") as count:
        count.advance(1)
        raise ValueError()
    assert capsys.readouterr().err == "Scoring: 1 example\n", "it took no time to speak of"


def test_metrics_have_the_digits_that_people_read(capsys):
    log.results({"eval_accuracy": 0.7261904761904762, "f1": np.float32(1 / 3), "pearson": math.nan,
                 "global_step": 1234567})
    assert capsys.readouterr().err.splitlines() == [
        "***** Eval results *****", "  eval_accuracy = 0.72619", "  f1 = 0.33333",
        "  pearson = nan", "  global_step = 1234567"]


def test_on_a_terminal_a_bar_moves_lines_stand_above_it_and_it_goes_in_the_end(clock, monkeypatch):
    terminal = Terminal(monkeypatch)
    clock(0.001)
    with progress.Counter("Scoring", unit="examples", total=4) as count:
        for part in range(4):
            log.info(f"line {part}")
            count.advance(1)
    text = terminal.close()
    assert re.search(r"Scoring:  75%\|\S+ *\| 3/4, [\d,.]+ examples/s, 00:00 left", text)
    *lines, closing, rest = screen(text)
    assert lines == ["line 0", "line 1", "line 2", "line 3"] and not rest
    assert re.fullmatch(r"Scoring: 4 examples( in \d+\.\d s, [\d,.]+ examples/s)?", closing)


def test_the_loss_in_the_log_is_that_of_the_steps_whatever_the_time_between_lines(clock, capsys):
    """The loss of a step is its number."""
    def last_line(seconds, first_step=0):
        clock(seconds)
        with step_hook.TrainingProgress(first_step, 400, cpu_devices(1), Throughput()) as shown:
            for number in range(first_step + 1, 401):
                shown.add(step_hook.Step(number, 8, float(number), 1e-5, 1.0))
        return [line.split(", lr")[0] for line in capsys.readouterr().err.splitlines()
                if line.startswith("step")]

    often, seldom = last_line(11), last_line(0.01)
    assert len(often) == 400 and seldom == [often[0], often[-1]]
    assert often[0] == "step 1/400: loss 1.0000"
    assert often[4] == "step 5/400: loss 3.0000 (mean of steps 1 to 5)"
    assert often[-1] == "step 400/400: loss 380.5000 (mean of steps 361 to 400)"
    assert last_line(0.01, 395)[-1] == "step 400/400: loss 398.0000 (mean of steps 396 to 400)", "resumed"


def test_the_bar_of_a_training_keeps_its_room_in_80_columns(clock, monkeypatch):
    terminal = Terminal(monkeypatch, columns=80)
    clock(1)
    with step_hook.TrainingProgress(0, 20000, cpu_devices(1), Throughput(1e9)) as shown:
        for number in range(1, 4):
            shown.add(step_hook.Step(number, 1, 0.5, 1e-5, 1.0))
            log.info("a line")  # which draws the bar anew
    bars = re.findall(r"step 3/20000 \|[^|]*\| loss 0.5000, lr 1.00e-05, [\d,.]+ examples/s, [\d:]+ left",
                      terminal.close())
    assert bars and all(len(bar) < 80 for bar in bars)


def test_an_error_finds_the_bar_of_a_training_gone(tiny_model, source, tmp_path, monkeypatch):
    terminal = Terminal(monkeypatch)

    def forward(features, mode):
        raise ValueError("not this one")

    with pytest.raises(ValueError):
        train(tiny_model, source, 1, settings(tmp_path, 8), forward=forward)
    sys.stderr.write("error: one line\n")
    text = terminal.close()
    assert "step 0/20 |" in text and screen(text)[-2:] == ["error: one line", ""]


def test_a_step_that_does_not_end_is_warned_of(monkeypatch):
    lines, warned, threads = [], threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(log, "warn", lambda line: (lines.append(line), warned.set()))

    def run(seconds, step):
        with tf.Graph().as_default():
            operation = tf.py_func(step, [], tf.bool)
            with step_hook.StallWarning(seconds) as stalled, tf.train.MonitoredSession(hooks=[stalled]) as session:
                session.run(operation)

    def fails():
        raise ValueError("a card has failed")

    run(0.1, lambda: warned.wait(60))
    assert lines[0].startswith("a step has taken 0 minutes so far. If it never ends, a card has failed")
    run(1e6, lambda: True)
    with pytest.raises(tf.errors.OpError, match="a card has failed"):
        run(1e6, fails)
    for thread in set(threading.enumerate()) - threads:
        if type(thread) is threading.Thread:  # ours, which waits for no step of a training that is over
            thread.join(60)
            assert not thread.is_alive()
    assert len(lines) == 1

"""A training that goes on with another global batch trains what is left of its examples, and no more."""

import collections
import itertools
import re

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import on_tensorflow_1, on_tensorflow_2
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.training import run_record
from engine.training.course import Course
from engine.training.settings import EpochSchedule, StepSchedule
from engine.training.summaries import read_history
from toy_runs import flags_of, module_of
from trainings import crash_after

import tensorflow.compat.v1 as tf

REPLICAS_AND_BATCHES = [(1, 8), (2, 4), (2, 8), (1, 4), (4, 8)]
EXAMPLES, EPOCHS = 240, 4


class Lengths:
    """A source of texts of different lengths, as far as the plan reads it."""
    lengths = np.random.RandomState(0).randint(3, 30, EXAMPLES)
    keys = None


def rates(course):
    """The share of the peak rate in each step of the last stretch, without a warm-up."""
    with tf.Session(graph=tf.Graph()) as session:
        steps = tf.range(course.last.first_step, course.last_step)
        return 1 - session.run(course.place(steps)) / course.nominal.num_train_steps


def examples_by_step(course, window=5):
    plan = course.plan(Lengths, 3, window)
    return [plan.global_batch(step) for step in range(course.last_step)]


@pytest.mark.parametrize("length", [
    EpochSchedule(EPOCHS, 0.1), StepSchedule(EPOCHS * EXAMPLES // 8, EPOCHS * EXAMPLES // 80)])
@pytest.mark.parametrize("killed_at", [1 / 3, 2 / 3])
def test_each_example_is_seen_once_an_epoch_and_the_rate_goes_on_whatever_the_batches(length, killed_at):
    for earlier, now in itertools.product(REPLICAS_AND_BATCHES, repeat=2):
        before, size = np.prod(earlier), np.prod(now)
        if isinstance(length, StepSchedule):  # the steps of the first batch
            length = StepSchedule(EPOCHS * EXAMPLES // before, EPOCHS * EXAMPLES // before // 10)
        alone = Course(length, EXAMPLES, [(0, before)])
        change = int(alone.last_step * killed_at)
        course = Course(length, EXAMPLES, [(0, before), (change, size)])
        seen = np.bincount(np.concatenate(examples_by_step(course)), minlength=EXAMPLES)
        after = rates(course)
        assert (EPOCHS - seen).sum() == (EPOCHS * EXAMPLES - change * before) % size and seen.max() == EPOCHS
        assert after[0] == pytest.approx(1 - change / alone.last_step)
        assert (np.diff(after) < 0).all()
        # That of a training which had this batch from the start, but for what does not fill a step.
        assert after[-1] == pytest.approx(size / EPOCHS / EXAMPLES, abs=size / EPOCHS / EXAMPLES)
        assert course.schedule.warmup_steps == alone.schedule.warmup_steps, "it has ended before the change"
        assert change == course.last.first_step


def test_a_change_back_and_a_second_change_lose_no_example_either():
    changes = [(0, 16), (7, 32), (9, 4), (20, 16), (21, 48)]
    course = Course(EpochSchedule(EPOCHS, 0.5), EXAMPLES, changes)
    steps = examples_by_step(course)
    # Each number of whole epochs is seen before the next one begins, but for the batches that straddle two.
    stream = np.concatenate(steps)
    for epoch in range(1, EPOCHS):
        seen = np.bincount(stream[:epoch * EXAMPLES], minlength=EXAMPLES)
        assert abs(seen - epoch).sum() <= 2 * 48
    assert np.bincount(stream, minlength=EXAMPLES).max() == EPOCHS
    assert EPOCHS * EXAMPLES - len(stream) < 48
    # A step that is asked for is that of the batch which it had.
    for (first_step, size), (next_step, _) in zip(changes, [*changes[1:], (course.last_step, 0)]):
        assert {len(batch) for batch in steps[first_step:next_step]} == {size}
        until = Course(EpochSchedule(EPOCHS, 0.5), EXAMPLES, [
            change for change in changes if change[0] <= first_step])
        np.testing.assert_array_equal(
            np.concatenate(examples_by_step(until)[:next_step]), np.concatenate(steps[:next_step]))
    assert course.schedule.warmup_steps > 21
    assert Course(EpochSchedule(EPOCHS, 0.5), EXAMPLES, changes[:1]).place(7) == 7


def test_less_than_a_batch_that_is_left_is_a_step_and_epochs_end_once():
    course = Course(EpochSchedule(1, 0), 10, [(0, 3), (2, 8)])
    assert (course.last_step, course.last.seen_after(3)) == (3, 14)
    course = Course(EpochSchedule(3, 0), 10, [(0, 3), (2, 2), (9, 4)])  # 6, 20 and 28 examples
    assert [step for step in range(12) if course.ends_epoch(step)] == [11]
    before = Course(EpochSchedule(3, 0), 10, [(0, 3), (2, 2)])
    assert [step for step in range(15) if before.ends_epoch(step)] == [4, 9, 14]


@pytest.fixture
def seen(monkeypatch):
    """Step → the numbers of its examples, as the last command has computed it."""
    steps = {}
    original = batches.training_share

    def share(source, plan, replicas, size, step):
        steps[step] = plan.global_batch(step)
        return original(source, plan, replicas, size, step)
    monkeypatch.setattr(batches, "training_share", share)
    return steps


@pytest.mark.parametrize("run", [  # whose length is in epochs or in steps
    pytest.param("run_classifier", marks=on_tensorflow_1), pytest.param("pretraining.run", marks=on_tensorflow_2)])
def test_a_command_trains_the_epochs_that_are_left_with_another_batch(run, seen, tiny_model, tmp_path, capsys):
    flags = {**flags_of(run, tmp_path, tiny_model), "save_checkpoints_steps": 1, "num_cpu_replicas": 1,
             "train_batch_size": 8}
    out, module = flags["output_dir"], module_of(run)

    def step():
        return checkpoints.latest(str(out)).global_step

    with crash_after(7):
        run_here(flags, module)
    # At once a step more than the steps of a whole training with the other batch.
    larger = {**flags, "num_cpu_replicas": 2, "allow_batch_change": True}
    with ends_with_error(capsys, "another global batch size: was 8, now 16", "35.0% of its examples are trained",
                         "set --allow_batch_change to train the other 65.0%"):
        run_here({**larger, "allow_batch_change": None}, module)
    with crash_after(9):
        run_here(larger, module)
    assert ("80 examples x 2 epochs = 13 steps, 0 of them warm-up: 35.0% of the examples in 7 steps before the "
            "change of the global batch, 65.0% in 6 steps from there on") in re.sub(
                r"\d( of them warm-up)", r"0\1", capsys.readouterr().err)
    with crash_after(10):  # the same command again goes on by itself
        run_here({**larger, "allow_batch_change": None}, module)
    accumulated = {**larger, "num_cpu_replicas": 1, "train_batch_size": 2, "gradient_accumulation_steps": 2}
    run_here(accumulated, module)  # 4 a step
    assert step() == 24 and run_record.load(str(out)).batches == [[0, 8], [7, 16], [10, 4]]
    counts = collections.Counter(np.concatenate([seen[number] for number in range(24)]).tolist())
    assert len(counts) == 80 and set(counts.values()) == {2}, "two epochs"
    curve = dict(read_history(str(out))["learning_rate"])
    shares = np.cumsum([0, *[8] * 7, *[16] * 3, *[4] * 14])[:-1] / 160
    np.testing.assert_allclose([curve[number] for number in range(4, 25)], 1e-3 * (1 - shares[3:]), rtol=1e-5)

    capsys.readouterr()
    for finished in (flags, {**larger, "allow_batch_change": None}, {**flags, "train_batch_size": 1000}):
        run_here(finished, module)
        assert "already trained to step 24 of 24" in capsys.readouterr().err
    length = "num_train_epochs" if "num_train_epochs" in flags else "num_train_steps"
    run_here({**flags, length: flags[length] // 2}, module)
    assert (f"already trained to step 24: nothing is left to train (--{length}: was {flags[length]}"
            in capsys.readouterr().err)
    run_here({**accumulated, length: flags[length] * 3 // 2}, module)  # the same batch: 80 examples more
    assert step() == 44

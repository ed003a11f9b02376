"""Event files hold the values of the training, also of one that was interrupted and resumed."""

import glob
import os

import numpy as np
import pytest

from conftest import cpu_devices
from engine.checkpoints import checkpoints
from engine.training import checkpoint_hook, summaries
from engine.training.step_hook import Step
from engine.training.throughput import Throughput
from trainings import Crash, recorded, settings, train

import tensorflow.compat.v1 as tf

STEPS, WARMUP, PEAK, REPLICAS = 24, 4, 5e-5, 2
NAMES = ["examples_per_second", "gradient_norm", "learning_rate", "loss", "peak_memory_gb"]


def events(directory):
    """Every event of a directory, through TensorFlow's own reader, file by file."""
    paths = sorted(glob.glob(os.path.join(str(directory), "events*")))
    return [event for path in paths for event in tf.train.summary_iterator(path)]


def schedule(step, peak=PEAK):
    """The learning rate of the update from `step`, as the paper has it."""
    return peak * (step / WARMUP if step < WARMUP else 1 - step / STEPS)


def values(history, name):
    return [value for _, value in history[name]]


def test_a_training_follows_the_schedule_that_its_settings_name(tiny_model, source, tmp_path):
    train(tiny_model, source, 1, settings(
        tmp_path, 16, num_train_steps=8, warmup_steps=2, lr_schedule="cosine", min_lr_ratio=0.5))
    # 0.75 + 0.25 * cos(45°, 67.5°, 90°, 112.5°, 135°, 157.5°)
    np.testing.assert_allclose(
        values(summaries.read_history(str(tmp_path)), "learning_rate"),
        PEAK * np.array([0, 0.5, 0.926777, 0.845671, 0.75, 0.654329, 0.573223, 0.519030]), rtol=1e-5)


def step(number, **values):
    return Step(number, 8, **{
        "loss": 1.0, "learning_rate": 0.1, "gradient_norm": 1.0, **values})


@pytest.fixture
def written(tmp_path):
    """The curves of these steps, as the training writes and the report reads them."""
    def history(steps, num_train_steps):
        with summaries.TrainingSummaries(
                str(tmp_path), num_train_steps, cpu_devices(1), Throughput()) as curves:
            for each in steps:
                curves.add(each)
        return summaries.read_history(str(tmp_path))
    return history


def test_a_long_run_has_points_at_intervals_that_are_means_over_their_steps(written, monkeypatch):
    monkeypatch.setattr(summaries, "_FIRST_STEPS", 2)
    monkeypatch.setattr(summaries, "_MAX_POINTS", 5)  # of 24 steps: every fifth
    history = written([step(number, loss=number, learning_rate=number, gradient_norm=2 * number)
                       for number in range(1, 25)], 24)
    assert history["loss"] == [(1, 1), (2, 2), (5, 4), (10, 8), (15, 13), (20, 18), (24, 22.5)]
    assert history["gradient_norm"] == [(number, 2 * mean) for number, mean in history["loss"]]
    assert history["learning_rate"] == [(number, number) for number, _ in history["loss"]]


def test_a_run_that_goes_on_continues_its_curves_with_each_step_once(
        tiny_model, source, tmp_path, monkeypatch, capsys):
    """It died at step 11, saved at 7 last, and went on from there with twice the rate."""
    losses, norms = recorded(monkeypatch)
    def die(self, run_context, run_values):
        original(self, run_context, run_values)
        if self.step == 11:
            raise Crash()
    original = checkpoint_hook.SaveHook.after_run
    changes = dict(num_train_steps=STEPS, save_checkpoints_steps=7)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(checkpoint_hook.SaveHook, "after_run", die)
        train(tiny_model, source, REPLICAS, settings(tmp_path, 8, **changes))
    assert checkpoints.latest(str(tmp_path)).global_step == 7
    train(tiny_model, source, REPLICAS, settings(tmp_path, 8, learning_rate=2 * PEAK, **changes))
    written = [event.step for event in events(tmp_path) if event.summary.value]
    assert sorted(written) == sorted([*range(1, 12), *range(8, STEPS + 1)])
    history = summaries.read_history(str(tmp_path))
    expected = [schedule(step, PEAK if step < 7 else 2 * PEAK) for step in range(STEPS)]
    assert [step for step, _ in history["learning_rate"]] == list(range(1, STEPS + 1))
    np.testing.assert_allclose(values(history, "learning_rate"), expected, rtol=1e-5, atol=1e-12)
    for name, expected in [("loss", losses), ("gradient_norm", norms)]:
        np.testing.assert_allclose(values(history, name), [*expected[:7], *expected[11:]], rtol=1e-6)
    # The first step's time is set-up: it has no rate.
    timed = [step for step in range(1, STEPS + 1) if step not in (1, 8)]
    assert [step for step, rate in history["examples_per_second"] if rate > 0] == timed
    memory = capsys.readouterr().err.rpartition("Peak memory: ")[2].split()[0]
    # The process may have grown in between.
    assert values(history, "peak_memory_gb")[-1] == pytest.approx(float(memory), abs=0.11)

    # TensorBoard shows the same.
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulators.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    board.Reload()
    assert sorted(board.Tags()["scalars"]) == NAMES
    for name in NAMES:
        assert [(event.step, event.value) for event in board.Scalars(name)] == history[name]


def test_values_that_are_not_finite_have_no_point(written):
    """As those of a step that mixed precision skips."""
    scale = dict(loss_scale=2.0 ** 15)
    history = written([step(1, **scale), step(2, loss=np.inf, gradient_norm=np.nan, **scale),
                       step(3, **scale)], 3)
    for name in ("loss", "gradient_norm"):
        assert history[name] == [(1, 1), (3, 1)]
    assert history["skipped_steps"] == [(1, 0), (2, 1), (3, 0)]


def test_an_event_that_a_killed_run_left_half_written_costs_that_event_alone(tmp_path):
    for step in (1, 2):
        summaries.write_evaluation(str(tmp_path), {"loss": step}, step)
    newest = max(glob.glob(str(tmp_path / "eval" / "*")), key=os.path.getmtime)
    with open(newest, "rb+") as file:
        file.truncate(os.path.getsize(newest) - 3)
    assert summaries.read_history(str(tmp_path / "eval")) == {"loss": [(1, 1)]}

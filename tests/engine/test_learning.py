"""A training that does not learn says so: once in the log, in its record and on its page."""

import json

import numpy as np
import pytest

from conftest import cpu_devices
from encoder import classifier
from engine.data.plan import TrainingPlan
from engine.model import Baseline
from engine.training import learning, run_record, summaries
from engine.training.settings import Schedule, TrainingSettings
from engine.training.step_hook import Step
from engine.training.throughput import Throughput
from trainings import run_loop, settings

LENGTHS = np.full(400, 8)
# Of an example: its number / 400. A batch of 4 has their mean.
BASELINE = Baseline("guessing", lambda indices: float(np.mean(indices)) / 400)


@pytest.fixture
def judge(tmp_path, capsys):
    """(losses above the baseline, of consecutive steps) → the lines of warnings in the log."""
    def run(excess, first=1, num_train_steps=100, warmup=10, is_given_model=True, can_fit=False, fitted=None, **changes):
        run_record.write(str(tmp_path), run_record.Record({}, {}, output_layer=fitted))
        plan = TrainingPlan(LENGTHS, 4, seed=7)
        check = learning.LearningCheck(
            str(tmp_path), TrainingSettings(**changes), Schedule(num_train_steps, warmup), plan, BASELINE,
            is_given_model, can_fit)
        with summaries.TrainingSummaries(
                str(tmp_path), num_train_steps, cpu_devices(1), Throughput()) as curves:
            for number, value in enumerate(excess, first):
                loss = BASELINE.loss(plan.global_batch(number - 1)) + value
                step = Step(number, 4, loss, 0.1, 1.0)
                curves.add(step)
                check.add(step)
        return [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    run.recorded = lambda: run_record.load(str(tmp_path)).warning
    return run


def test_a_loss_that_stays_at_the_baseline_is_reported_once(judge):
    warnings = judge([0.001] * 100)
    assert len(warnings) == 1
    for part in ("does not learn", "41 to 50", "guessing", "try, in this order: "):
        assert part in warnings[0]
    assert "91 to 100" in judge.recorded() and "guessing" in judge.recorded()


MORE, LOWER = "more steps than {}, such as more epochs", "a lower --learning_rate"
CORRECTED, RISES = "--adam_bias_correction", "a lower --learning_rate, since the loss rises"
MODEL = "a trained model as --init_checkpoint, since none was given"
FITTED = "--fit_output_layer, if there are many or rare classes"
DATA = "a look at the data, for labels or columns that are mixed up"
FLAT, RISING = [0.5] * 100, [-0.5] * 70 + [1.5] * 30


@pytest.mark.parametrize("excess, settings, remedies", [
    (FLAT, {}, [MORE, DATA]),
    (FLAT, dict(can_fit=True), [FITTED, MORE, DATA]),
    (FLAT, dict(can_fit=True, fitted={"is_used": True}), [MORE, DATA]),
    (FLAT, dict(can_fit=True, is_given_model=False), [MODEL, MORE, DATA]),
    (FLAT, dict(learning_rate=2e-4), [MORE, CORRECTED, LOWER, DATA]),
    (RISING, {}, [RISES, MORE, DATA]),
    (RISING * 5, dict(num_train_steps=500, learning_rate=3e-4), [RISES, CORRECTED, DATA]),
    (FLAT * 5, dict(num_train_steps=500, is_given_model=False), [MODEL, LOWER, DATA])])
def test_what_to_try_follows_from_what_was_seen(excess, settings, remedies, judge):
    judge(excess, **settings)
    assert judge.recorded().split("try, in this order: ")[1] == "; ".join(remedies).format(
        settings.get("num_train_steps", 100))


@pytest.mark.parametrize("excess, settings", [
    ([1.0] * 30 + [-0.001] * 70, {}),  # just below the baseline
    ([0.5] * 40 + [-0.5] * 10 + [0.5] * 10 + [-0.5] * 40, {}),  # above it once
    ([0.5] * 49, {}), ([0.5] * 89, dict(warmup=70)),  # before a quarter and the warm-up
    ([0.5] * 49, dict(num_train_steps=49)),  # a short run
    ([np.nan, -0.1, -0.1, -0.1] * 25, {})])  # steps that mixed precision skipped
def test_what_may_yet_learn_is_not_reported(excess, settings, judge):
    assert not judge(excess, **settings) and judge.recorded() is None


def test_a_loss_that_is_above_the_baseline_at_the_end_is_reported(judge):
    assert "91 to 100" in judge([-0.5] * 90 + [0.5] * 10)[0]


def test_a_training_on_a_wrong_column_has_the_warning_in_its_record(
        source, tiny_model, tmp_path, capsys):
    """A classifier of texts, whose labels are the parity of the examples' numbers."""
    def fetch(indices, length):
        return {**source.fetch(indices, length), "label_ids": (indices % 2).astype(np.int32)}

    baseline, out = Baseline("knowing nothing", lambda indices: float(np.log(2))), tmp_path / "out"
    out.mkdir()
    run_record.write(str(out), run_record.Record({}, {}))
    run_loop(classifier.forward_of(tiny_model.config(), 2), source._replace(fetch=fetch), 2,
             settings(out, 4, num_train_steps=50, learning_rate=1e-3), None, baseline=baseline)
    assert capsys.readouterr().err.count("WARNING: this training does not learn") == 1
    assert "knowing nothing" in json.loads((out / "run.json").read_text())["warning"]

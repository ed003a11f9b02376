"""Evaluations during a training: the best checkpoint is kept and used, patience ends the run."""

import json
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from commands import arguments, ends_with_error, on_cola, results_of, run_command, run_here
from conftest import checkpoint_values, on_tensorflow_1
from engine.checkpoints import checkpoints
from engine.training import summaries
from engine.training.evaluations import Evaluations
from engine.training.settings import EvaluationSettings
from trainings import crash_after

STEPS = 12


@pytest.fixture(scope="module")
def flags(tiny_model, tmp_path_factory):
    """The flags of a run of 12 steps on two replicas, evaluated after 4, 8 and 12."""
    directory = tmp_path_factory.mktemp("selection")
    return on_cola(
        tiny_model, directory, dev=21, test=13, store_dir=directory / "store", train_batch_size=4, num_cpu_replicas=2,
        num_train_epochs=2, learning_rate=1e-3, do_eval=True, eval_every_steps=4)


@pytest.fixture(scope="module")
def finished(flags, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("finished")
    process = run_command(*arguments({**flags, "output_dir": output_dir}))
    assert process.returncode == 0, process.stderr
    return output_dir, process.stderr


def steady(flags, output_dir, **changes):
    """Flags of a run that does not learn: its first evaluation is as good as all later ones."""
    return {**flags, "output_dir": output_dir, "learning_rate": 1e-12, "eval_every_steps": 2,
            "num_cpu_replicas": 1, "train_batch_size": 8, **changes}


def evaluations(output_dir):
    return json.loads((output_dir / "evaluations.json").read_text())


def steps_in(output_dir):
    return sorted(int(name[len("model.ckpt-"):-len(".index")])
                  for name in os.listdir(str(output_dir)) if name.endswith(".index"))


# --- What an evaluation says ---------------------------------------------------------------


@on_tensorflow_1
def test_each_evaluation_is_that_of_its_checkpoint_alone(flags, finished, tmp_path):
    done = evaluations(finished[0])["evaluations"]
    assert [evaluation["step"] for evaluation in done] == [4, 8, 12] == steps_in(finished[0])
    run_here({**flags, "do_train": False, "output_dir": tmp_path, "num_cpu_replicas": 1,
              "init_checkpoint": finished[0] / "model.ckpt-4"})
    alone = results_of(tmp_path)
    for name in ("eval_accuracy", "eval_loss", "matthews_correlation"):
        assert done[0][name] == pytest.approx(alone[name], abs=1e-6), name


def test_each_evaluation_is_a_line_and_a_point_in_the_curves(finished):
    lines = re.findall(r"^Evaluation at step (\d+): eval_accuracy \d\.\d{4}, matthews_correlation "
                       r".*, eval_loss \d\.\d{4} \(.*best.*\)$", finished[1], re.M)
    assert lines == ["4", "8", "12"]
    curves = summaries.read_history(str(finished[0] / "eval"))
    for name in ("eval_accuracy", "eval_loss"):
        assert [value for _, value in curves[name]] == pytest.approx(
            [evaluation[name] for evaluation in evaluations(finished[0])["evaluations"]])


def test_evaluating_changes_nothing_of_the_training(flags, finished, tmp_path):
    run_here({**flags, "output_dir": tmp_path, "eval_every_steps": None, "do_eval": None})
    np.testing.assert_equal(checkpoint_values(str(tmp_path)),
                            checkpoint_values(str(finished[0] / "model.ckpt-12")))
    assert not (tmp_path / "evaluations.json").exists()


# --- The best one --------------------------------------------------------------------------


def test_the_best_is_kept_and_evaluated_predicted_with_and_exported(flags, tmp_path):
    output_dir = tmp_path / "out"
    run_here(steady(flags, output_dir, keep_checkpoint_max=1, do_predict=True))
    assert steps_in(output_dir) == [2, STEPS], "the best and the newest"
    assert evaluations(output_dir)["best_checkpoint"] == "model.ckpt-2"
    assert results_of(output_dir)["global_step"] == 2
    assert checkpoints.latest(str(output_dir)).global_step == STEPS
    assert checkpoints.open_checkpoint(str(output_dir)).global_step == 2


def test_the_best_is_not_chosen_by_two_dev_sets(flags, tmp_path, capsys):
    out, data = tmp_path / "out", tmp_path / "data"
    with crash_after(8):
        run_here({**flags, "output_dir": out})
    shutil.copytree(str(flags["data_dir"]), str(data))
    (data / "dev.tsv").write_text("".join((data / "dev.tsv").read_text().splitlines(True)[:-1]))
    with ends_with_error(capsys, "out is a training that another dev set has judged", "leave out --do_train"):
        run_here({**flags, "output_dir": out, "data_dir": data})
    run_here({**flags, "output_dir": out, "data_dir": data, "do_train": None, "eval_every_steps": None})
    assert results_of(out)["global_step"] == 4
    run_here({**flags, "output_dir": out})
    assert [evaluation["step"] for evaluation in evaluations(out)["evaluations"]] == [4, 8, 12]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Decisions after evaluations with these values of a metric, each of a later step."""
    monkeypatch.setattr(checkpoints, "has_whole", lambda directory, step: True)

    def decide(values, *, metric="score", patience=None):
        settings = EvaluationSettings(eval_every_steps=1, metric_for_best=metric,
                                      early_stopping_patience=patience)
        remaining = iter(values)
        evaluator = Evaluations(
            str(tmp_path), settings, lambda checkpoint, advance: {metric: next(remaining)})
        stopped = None
        for step, _ in enumerate(values, start=1):
            evaluator.run(SimpleNamespace(global_step=step))
            if evaluator.should_stop_early():
                stopped = stopped or step
        return evaluator.best_step, stopped
    return decide


@pytest.mark.parametrize("values, options, expected", [
    ([0.1, 0.3, 0.2], {}, (2, None)),
    ([0.1, 0.3, 0.3], {}, (2, None)),  # the first of equals
    ([0.3, 0.1, 0.2], dict(metric="eval_loss"), (2, None)),
    ([float("nan"), 0.1, float("nan")], {}, (2, None)),
    ([float("nan"), float("nan")], dict(patience=2), (None, 2)),
    ([0.3, 0.1, 0.2, 0.1], dict(patience=2), (1, 3)),
    ([0.3, 0.1, 0.4, 0.1, 0.2], dict(patience=2), (3, 5)),
])
def test_the_best_and_the_patience_are_those_of_the_values(
        values, options, expected, recorded, capsys):
    assert recorded(values, **options) == expected
    if expected[0] is None:
        said = capsys.readouterr().err
        assert "(the best: none, as score was never a number)" in said
        assert "2 evaluations had no score that is a number" in said


def test_a_run_whose_newest_checkpoint_and_store_are_damaged_ends_the_same(
        flags, finished, tmp_path, capsys):
    output_dir = tmp_path / "out"
    shutil.copytree(str(finished[0]), str(output_dir))
    shutil.copytree(str(flags["store_dir"]), str(tmp_path / "store"))
    values, = (tmp_path / "store").glob("train-*/input_ids.values")
    for path in (output_dir / "model.ckpt-12.data-00000-of-00001", values):
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(bytes(content))
    # A file that other machines and other places have written.
    (output_dir / "checkpoint").write_text("".join(
        f'{key}: "/moved/model.ckpt-{step}"\n' for key, step in (
            ("model_checkpoint_path", 12), ("all_model_checkpoint_paths", 4),
            ("all_model_checkpoint_paths", 8), ("all_model_checkpoint_paths", 12))))
    run_here({**flags, "output_dir": output_dir, "store_dir": tmp_path / "store"})
    said = capsys.readouterr().err
    assert said.count("model.ckpt-12 is damaged") == 1 and "model.ckpt-8 (step 8)" in said
    assert said.count("is made again") == 1
    np.testing.assert_equal(*(checkpoint_values(str(folder / "model.ckpt-12"))
                              for folder in (output_dir, finished[0])))
    for name in ("evaluations.json", "eval_results.txt", "checkpoint"):
        assert (output_dir / name).read_text() == (finished[0] / name).read_text()


# --- Early stopping, and going on ----------------------------------------------------------


def test_patience_ends_the_run_the_same_command_changes_nothing_and_a_larger_one_goes_on(
        flags, tmp_path, capsys):
    """It stops two evaluations after its best."""
    output_dir = tmp_path / "out"
    run_here(steady(flags, output_dir, early_stopping_patience=2))
    assert steps_in(output_dir)[-1] == 6
    before = (output_dir / "evaluations.json").read_text()
    capsys.readouterr()
    run_here(steady(flags, output_dir, early_stopping_patience=2))
    said = capsys.readouterr().err
    assert ("Stopped early at step 6: 2 evaluations did not improve on the eval_accuracy of step 2"
            in said) and "Training on" not in said
    assert (output_dir / "evaluations.json").read_text() == before
    run_here(steady(flags, output_dir, early_stopping_patience=4))
    assert steps_in(output_dir)[-1] == 10


@pytest.mark.parametrize("changes, error", [
    (dict(do_eval=None), "need --do_eval; set that, too"),
    (dict(eval_each_epoch=True), "cannot be combined"),
    (dict(eval_every_steps=-1), "--eval_every_steps=-1: must be between 0"),
    (dict(eval_every_steps=0, early_stopping_patience=3), "needs evaluation during the training"),
    (dict(metric_for_best="f1"), "choose from eval_accuracy, matthews_correlation, eval_loss"),
    (dict(early_stopping_patience=0), "--early_stopping_patience=0: must be a number greater"),
])
def test_flags_that_make_no_sense_are_refused_in_one_line(changes, error, flags, tmp_path, capsys):
    with ends_with_error(capsys, error):
        run_here({**flags, "output_dir": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()

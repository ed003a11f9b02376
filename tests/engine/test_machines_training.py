"""Trainings on several workers end as on one, whatever happens on the way. Real processes."""

import json
import re
import signal
import time

import numpy as np
import pytest

import toy_runs
import workers
from commands import on_cola, run_here
from conftest import (assert_same_training, checkpoint_values, on_tensorflow_1, write_cola)
from engine.devices import runtime
from engine.workers.cluster import PEER_LOST_STATUS
from golden import RUNTIME, losses_of, read_golden
from pretraining_files import LENGTH
from processes import step_of
from reproducible_model import write_model
from toy_runs import SHARED


@pytest.fixture(scope="module")
def job(tiny_model, tmp_path_factory):
    """The flags of 24 steps with dropout, each of which is saved."""
    folder = tmp_path_factory.mktemp("job")
    model = tiny_model.with_config(folder / "bert_config.json", hidden_dropout_prob=0.1)
    return on_cola(
        model, folder, train_batch_size=2, num_train_epochs=4, learning_rate=1e-3, save_checkpoints_steps=1,
        adam_bias_correction=True, heartbeat_timeout=20)


def start_from(directory, job):
    """Starts two workers with two replicas each, and waits until they have saved 3 more steps."""
    started = workers.start_command(
        directory, ["run_classifier.py"],
        lambda index: dict(job, num_cpu_replicas=2, output_dir=directory / "out"))
    step = step_of(directory / "out") + 3
    while step_of(directory / "out") < step:
        assert all(worker.is_running() for worker in started), [each.said() for each in started]
        time.sleep(0.005)
    return started


@on_tensorflow_1
def test_a_run_that_was_ended_lost_a_worker_and_changed_their_number_ends_as_on_one(job, tmp_path):
    """2 workers x 2 replicas, told to end; the same, with a killed chief; then 1 x 4."""
    run_here(dict(job, num_cpu_replicas=4, output_dir=tmp_path / "alone"))

    chief, other = start_from(tmp_path, job)
    other.kill(signal.SIGTERM)
    for ended, keeper in ((chief.end(), str(tmp_path / "out")), (other.end(), r"worker 0 \(\S+\)")):
        assert ended.status == 128 + signal.SIGTERM, ended
        assert re.search(
            f": {keeper} has a checkpoint at step {step_of(tmp_path / 'out')} of 24", ended.said)

    chief, other = start_from(tmp_path, job)
    chief.kill()
    ended = other.end()
    assert ended.status == PEER_LOST_STATUS, ended
    assert "worker 0 (" in ended.said and "is lost" in ended.said

    assert step_of(tmp_path / "out") < 24
    run_here(dict(job, num_cpu_replicas=4, output_dir=tmp_path / "out"))
    assert_same_training(checkpoint_values(str(tmp_path / "alone")),
                         checkpoint_values(str(tmp_path / "out")))


@on_tensorflow_1
@pytest.mark.parametrize("name, changed_by", [
    ("data: content", lambda folder: {"data_dir": write_cola(folder / "other", train=40)}),
    ("--learning_rate", lambda folder: {"learning_rate": 1e-4})])
def test_every_worker_says_what_is_different(name, changed_by, job, tmp_path):
    others = {"num_cpu_replicas": 1, "store_dir": tmp_path / "store"}
    changed = changed_by(tmp_path)
    for worker in workers.start_command(tmp_path, ["run_classifier.py"], lambda index: {
            **job, **others, **(changed if index else {}), "output_dir": tmp_path / "out"}):
        ended = worker.end()
        assert ended.status == 2 and f"the workers differ in {name}: worker 0 (" in ended.said
    assert not step_of(tmp_path / "out")


# Between two workers, what a capability trains makes no difference to a runtime.
STUDENT = "distillation.run --stage=intermediate"
RUNS = ("run_classifier", STUDENT if runtime.IS_TENSORFLOW_1 else "similarity.run")


@pytest.fixture(scope="module")
def golden_runs(tmp_path_factory):
    """The folder of runs of test_golden_losses.py, each on two workers with a replica each."""
    folder = tmp_path_factory.mktemp("golden")
    model = write_model(folder / "model")
    for run in RUNS:
        if run == STUDENT:  # which starts from the student of the first stage
            toy_runs.train("distillation.run --stage=general", folder, model)
        flags = dict(toy_runs.flags_of(run, folder, model), num_cpu_replicas=1)
        if run == "run_classifier":
            # The student's teacher is the last checkpoint, not the best one.
            flags.update(do_eval=True, do_predict=True,
                         eval_every_steps=None if STUDENT in RUNS else 10)
        (folder / f"{run} log").mkdir()
        ended = [worker.end() for worker in workers.start_command(
            folder / f"{run} log", ["-m", run.split(" ")[0]], lambda index: flags)]
        assert [each.status for each in ended] == [0, 0], ended
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_each_capability_has_the_losses_of_two_replicas_of_one_process(name, golden_runs):
    np.testing.assert_allclose(losses_of(golden_runs / name), read_golden()[RUNTIME][name],
                               rtol=1e-4)


def test_evaluation_and_prediction_count_each_example_once(golden_runs):
    """They run on the chief: the same command in one process says the same."""
    directory = golden_runs / "run_classifier"
    names = ("eval_results.txt", "test_results.tsv", "predict.txt")
    results = {name: (directory / name).read_text() for name in names}
    assert len(results["test_results.tsv"].splitlines()) == 5
    run_here(dict(SHARED, do_train=False, do_eval=True, do_predict=True, num_cpu_replicas=1,
                  output_dir=directory, data_dir=golden_runs / "cola", task_name="cola",
                  max_seq_length=LENGTH, vocab_file=golden_runs / "model" / "vocab.txt",
                  bert_config_file=golden_runs / "model" / "bert_config.json"))
    assert results == {name: (directory / name).read_text() for name in names}
    if not runtime.IS_TENSORFLOW_1:  # it also evaluates on the way
        evaluations = json.loads((directory / "evaluations.json").read_text())["evaluations"]
        assert [entry["step"] for entry in evaluations] == [10, 20]



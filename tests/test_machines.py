"""TF_CONFIG, which cluster managers set: for one machine it changes nothing, others are refused."""

import json
import os

import pytest

from commands import run_here
from conftest import checkpoint_values, write_cola
from engine import devices
from engine.errors import UserError

ONE = {"cluster": {"worker": ["trainer-0.jobs.svc:2222"]}, "task": {"type": "worker", "index": 0}}


def test_a_job_of_one_machine_trains_and_evaluates_there(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(ONE))
    run_here(dict(tiny_model._asdict(), task_name="cola", do_train=True, do_eval=True,
                  data_dir=write_cola(tmp_path / "cola", train=8, dev=4), max_seq_length=16,
                  train_batch_size=2, num_train_epochs=1, num_cpu_replicas=2,
                  output_dir=tmp_path / "out"))
    assert checkpoint_values(str(tmp_path / "out"))["global_step"] == 2
    assert (tmp_path / "out" / "eval_results.txt").exists()


@pytest.mark.parametrize("value", ["", "{}", '{"cluster": {}}', json.dumps(ONE),
                                   '{"cluster": {"worker": "trainer-0.jobs.svc:2222"}}'])
def test_what_names_no_other_machine_is_taken_out_of_the_environment(value, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", value)
    devices.find_devices(num_cpu_replicas=2)
    assert "TF_CONFIG" not in os.environ


@pytest.mark.parametrize("value, said", [
    (json.dumps({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}}),
     "names 3 machines (a:1, b:1, c:1)"),
    ("{cluster", "not the JSON of a cluster"), ("[]", "not the JSON of a cluster"),
    ('{"cluster": {"worker": 5}}', "not the JSON of a cluster")])
def test_others_and_what_is_no_cluster_are_refused(value, said, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UserError) as caught:
        devices.find_devices(num_cpu_replicas=2)
    assert said in str(caught.value) and "TF_CONFIG" in str(caught.value)

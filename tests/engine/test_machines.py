"""Several workers of a run: who they are, how they meet, and how each learns of another's end."""

import json
import os
import signal
import socket
import time

import pytest

import run_classifier
import workers
from commands import run_here
from conftest import on_tensorflow_1
from engine.cli import command
from engine.disk import files
from engine.errors import UserError
from engine.workers import messages
from engine.workers.cluster import ALONE, PEER_LOST_STATUS, Cluster, from_environment
from runs import predict

pytestmark = on_tensorflow_1  # how workers meet depends on no runtime

ONE = {"cluster": {"worker": ["trainer-0.jobs.svc:2222"]}, "task": {"type": "worker", "index": 0}}
THREE = {"cluster": {"worker": ["b:1", "c:1"], "chief": ["a:1"]},
         "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("value", ["", "{}", '{"cluster": {}}', json.dumps(ONE)])
def test_what_names_no_other_worker_is_taken_out_of_the_environment(value):
    environment = {"TF_CONFIG": value}
    assert from_environment(environment) == ALONE
    assert not environment


def test_the_chief_is_the_first_worker():
    cluster = from_environment({"TF_CONFIG": json.dumps(THREE)})
    assert cluster == Cluster(("a:1", "b:1", "c:1"), 2)
    assert not cluster.is_chief and cluster._replace(index=0).is_chief


@pytest.mark.parametrize("value, said", [
    ("{cluster", "not the JSON of a cluster"), ("[]", "not the JSON of a cluster"),
    ('{"cluster": {"worker": 5}}', "not the JSON of a cluster"),
    (json.dumps({**THREE, "task": {}}), "not the JSON of a cluster"),
    (json.dumps({**THREE, "task": {"type": "worker", "index": 2}}), "this process is worker 2"),
    # It would train alone, into the folder of the chief.
    ('{"cluster": {"chief": ["a:1"], "evaluator": ["b:1"]}, "task": {"type": "evaluator", '
     '"index": 0}}', "is evaluator 0"),
    *((json.dumps(THREE).replace('"index": 1', f'"index": {index}'), f"this process is worker {said}")
      for index, said in (("1e999", "inf"), ("1.5", "1.5"), ("true", "True"), ("-1", "-1"))),
    ("[" * 100000, "not the JSON of a cluster"),
    ('{"cluster": {"worker": ["a:1", "b:1", "A:1"]}, "task": {"type": "worker", "index": 0}}',
     "names a:1 more than once"),
    ('{"cluster": {"worker": ["a:1", "b\\u001b[2J:1"]}}', r"'b\x1b[2J:1' is no HOST:PORT"),
    ('{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}', "is ps 0"),
    ('{"cluster": {"worker": ["a", "b:1"]}}', "'a' is no HOST:PORT")])
def test_what_is_no_cluster_of_workers_is_refused(value, said):
    with pytest.raises(UserError) as caught:
        from_environment({"TF_CONFIG": value})
    assert said in str(caught.value) and "TF_CONFIG" in str(caught.value)


@pytest.mark.parametrize("module, given", [
    (predict, {}), (run_classifier, {"do_export": True}), (run_classifier, {"do_eval": True})])
def test_what_does_not_train_runs_on_the_chief_alone(module, given, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", json.dumps(THREE))
    with pytest.raises(SystemExit) as caught:
        run_here(given, module)
    assert caught.value.code == 0
    assert "This runs on worker 0 (a:1) alone" in capsys.readouterr().err


def start(directory, call, *arguments, addresses=(), which=None, **more):
    """Starts workers that call a function of toy_worker.py; by default three."""
    return workers.start_command(
        directory, ["-m", "tests.helpers.toy_worker"],
        lambda index: {"call": call, "arguments": json.dumps(arguments), **more}, addresses,
        count=3, which=which)


def test_workers_meet_and_agree(tmp_path):
    ended = [worker.end() for worker in start(tmp_path, "agree", str(tmp_path))]
    assert [each.status for each in ended] == [0, 0, 0], ended
    for index in range(3):
        names = json.loads((tmp_path / f"{index}.json").read_text())
        assert names == ["worker 0", "worker 1", "worker 2"]


def test_values_may_be_longer_than_a_message(tmp_path):
    ended = [worker.end() for worker in start(tmp_path, "exchange", 3 * messages._LONGEST)]
    assert [each.status for each in ended] == [0, 0, 0], ended


def test_workers_that_do_not_do_the_same_say_so_and_none_waits(tmp_path):
    for worker in start(tmp_path, "do_another_thing"):
        ended = worker.end()
        assert ended.status == command.USER_ERROR_STATUS, ended
        assert "the workers do not do the same: worker 0 (" in ended.said
        assert ended.said.count("error:") == 1


def test_others_end_with_the_status_of_a_worker_that_failed(tmp_path):
    failed, *others = [worker.end() for worker in start(tmp_path, "fail", 0, "no such file")]
    assert failed.status == 1
    for other in others:
        assert other.status == 1
        assert "worker 0 (" in other.said and "no such file" in other.said


def test_others_end_with_a_chief_whose_output_nobody_reads(tmp_path):
    chief, *others = [worker.end() for worker in start(tmp_path, "lose_reader")]
    assert [each.status for each in (chief, *others)] == 3 * [128 + signal.SIGPIPE]
    for other in others:
        assert "worker 0 (" in other.said and "has ended: nobody reads its output any more" in other.said


@pytest.mark.parametrize("number, lost", [(signal.SIGKILL, 0), (signal.SIGSTOP, 2)])
def test_a_lost_worker_is_named_by_all_others(number, lost, tmp_path):
    started = start(tmp_path, "hang", str(tmp_path), heartbeat_timeout=6.0)
    for index in range(3):
        workers.wait_for(str(tmp_path / f"here{index}"), started)
    started[1].kill(signal.SIGSTOP)
    time.sleep(1.5)  # so short a silence is borne
    started[1].kill(signal.SIGCONT)
    started[lost].kill(number)
    for index in {0, 1, 2} - {lost}:
        ended = started[index].end()
        assert ended.status == PEER_LOST_STATUS
        assert f"worker {lost} (" in ended.said and "is lost" in ended.said
        assert ended.said.count("error:") == 1
    if number == signal.SIGSTOP:
        started[lost].kill(signal.SIGCONT)
        assert started[lost].end().status == PEER_LOST_STATUS


def test_a_worker_that_does_not_come_is_named(tmp_path):
    addresses = workers.free_addresses(3)
    started = start(tmp_path, "hang", str(tmp_path), addresses=addresses, peer_timeout=5.0,
                    which=(0, 2))
    for worker in started:
        ended = worker.end()
        assert ended.status == PEER_LOST_STATUS
        assert f"worker 1 ({addresses[1]})" in ended.said and "peer_timeout" in ended.said


def test_a_wrong_host_name_is_named(tmp_path):
    addresses = workers.free_addresses(2)
    addresses[1] = "no-such-host.invalid:" + addresses[1].rpartition(":")[2]
    for worker in start(tmp_path, "hang", str(tmp_path), addresses=addresses, peer_timeout=5.0):
        ended = worker.end()
        assert ended.status == command.USER_ERROR_STATUS
        assert f"worker 1 ({addresses[1]}) could not be reached" in ended.said
        assert ended.said.count("error:") == 1


def test_a_port_in_use_is_named_by_all(tmp_path):
    addresses = workers.free_addresses(3)
    with socket.socket() as user:
        user.bind(("127.0.0.1", int(addresses[1].rpartition(":")[2])))
        user.listen(1)
        for worker in start(tmp_path, "hang", str(tmp_path), addresses=addresses):
            ended = worker.end()
            assert ended.status == command.USER_ERROR_STATUS
            assert f"worker 1 ({addresses[1]}): its port cannot be opened" in ended.said


def test_one_worker_of_each_disk_builds_what_all_read(tmp_path):
    disks = [tmp_path / "one", tmp_path / "other"]
    for disk in disks:
        disk.mkdir()
    started = start(tmp_path, "build", str(tmp_path), [str(disks[min(i, 1)]) for i in range(3)])
    assert [worker.end().status for worker in started] == [0, 0, 0]
    read = [(tmp_path / f"read_by_{index}").read_text() for index in range(3)]
    assert read == ["worker 0", "worker 1", "worker 1"]
    assert all(os.listdir(str(disk)) == ["built"] for disk in disks)


def test_all_begin_with_the_chiefs_checkpoint_and_only_the_chief_writes(tiny_classifier, tmp_path):
    chief, other = tiny_classifier, tmp_path / "other"  # a disk on which nothing is
    started = start(tmp_path, "begin", str(tmp_path), [str(chief), str(chief), str(other)])
    assert [worker.end().status for worker in started] == [0, 0, 0]
    (chief / "by_0").unlink()
    _, names, _ = json.loads((tmp_path / "0.json").read_text())
    for index in (1, 2):
        hashes, own_names, own = json.loads((tmp_path / f"{index}.json").read_text())
        assert own_names == names[-1:] == ["model.ckpt-12"]
        for name in ("run.json", "model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001"):
            assert hashes[name] == files.hash_of_file(str(chief / name))
        assert not os.path.exists(own)
    assert not other.exists() and not (chief / "by_1").exists()

"""Several hosts, each in a network namespace of its own: what workers do when a link or host fails.

`benchmarks/hosts.py` makes the hosts, and says where it cannot.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import hosts
from commands import arguments, run_here
from conftest import ROOT, assert_same_training, checkpoint_values, write_cola
from test_interruption import step_of

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "hosts can be made")

# A worker that meets the others, says so, and waits. It needs no TensorFlow.
WAITING = """
import sys, time
from absl import flags
from engine import command, machines, peers
def main(values):
    peers.join(machines.from_environment(), 60, values.heartbeat_timeout)
    peers.current().wait("all")
    sys.stdout.write("met\\n"); sys.stdout.flush()
    time.sleep(100)
values = flags.FlagValues()
flags.DEFINE_float("heartbeat_timeout", None, "", flag_values=values)
flags.DEFINE_bool("do_train", True, "", flag_values=values)  # what several workers do
command.run(main, values, usage="")
"""
HEARTBEAT_SECONDS = 4


@pytest.fixture
def network(request):
    with hosts.Network(request.param) as made:
        yield made


@pytest.fixture
def workers(network, tmp_path):
    """A waiting worker on each host; all have met."""
    (tmp_path / "waiting.py").write_text(WAITING)
    addresses = [f"{host.address}:2222" for host in network.hosts]
    started = []
    for index, host in enumerate(network.hosts):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        started.append(subprocess.Popen(
            [*host.enter, sys.executable, str(tmp_path / "waiting.py"),
             f"--heartbeat_timeout={HEARTBEAT_SECONDS}"],
            env={**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": ROOT},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True))
    assert [worker.stdout.readline() for worker in started] == ["met\n"] * len(started)
    yield started
    for worker in started:
        worker.kill()
        worker.communicate()


def assert_ends_for_loss_of(victim, worker):
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 193
    assert f"error: worker {victim} (10.77.0.{victim + 1}:2222) is lost: " in errors


@pytest.mark.parametrize("network, victim", [(2, 1), (3, 0)], indirect=["network"])
def test_a_cut_link_is_noticed_on_both_sides(network, workers, victim):
    network.cut(network.hosts[victim])
    for index, worker in enumerate(workers):
        if index != victim:
            assert_ends_for_loss_of(victim, worker)
    assert workers[victim].wait(60) == 193


@pytest.mark.parametrize("network", [3], indirect=True)
def test_a_host_that_disappears_is_noticed_by_all_others(network, workers):
    network.lose(network.hosts[1])
    for index in (0, 2):
        assert_ends_for_loss_of(1, workers[index])


@pytest.mark.parametrize("network", [3], indirect=True)
def test_a_worker_that_is_stopped_is_noticed_by_all_others(network, workers):
    os.kill(workers[2].pid, signal.SIGSTOP)
    for index in (0, 1):
        assert_ends_for_loss_of(2, workers[index])


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_slow_link_and_a_short_cut_are_borne(network, workers):
    network.slow_down(network.hosts[1], "64kbit")
    network.cut(network.hosts[0])
    time.sleep(HEARTBEAT_SECONDS / 4)
    network.mend(network.hosts[0])
    time.sleep(2 * HEARTBEAT_SECONDS)
    assert [worker.poll() for worker in workers] == [None, None]


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_training_whose_link_is_cut_is_started_again_and_ends_like_one_process(
        network, tiny_model, tmp_path):
    config = {**tiny_model.config().to_dict(), "hidden_dropout_prob": 0.1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = dict(tiny_model._asdict(), bert_config_file=tmp_path / "config.json", do_train=True,
                 task_name="cola", data_dir=write_cola(tmp_path / "cola", train=40),
                 max_seq_length=16, train_batch_size=2, num_train_epochs=12, learning_rate=1e-3,
                 save_checkpoints_steps=5, heartbeat_timeout=HEARTBEAT_SECONDS)
    run_here({**flags, "output_dir": tmp_path / "whole", "num_cpu_replicas": 2})

    launcher = launch(network, {**flags, "output_dir": tmp_path / "out", "num_cpu_replicas": 1},
                      tmp_path)
    try:
        while step_of(tmp_path / "out") < 20:
            assert launcher.poll() is None, launcher.communicate()
            time.sleep(0.01)
        network.cut(network.hosts[1])
        lines = []
        while not lines or "WARNING: [10.77.0." not in lines[-1]:
            lines.append(launcher.stderr.readline())
            assert lines[-1], lines
        network.mend(network.hosts[1])
        _, errors = launcher.communicate(timeout=300)
    finally:
        launcher.terminate()
    assert launcher.returncode == 0, errors
    assert "error: worker 1 (10.77.0.2:29400) is lost" in "".join(lines)
    assert "restart 1 of 3" in errors and "Resuming from" in errors
    assert_same_training(checkpoint_values(str(tmp_path / "whole")),
                         checkpoint_values(str(tmp_path / "out")))


def launch(network, flags, directory):
    """The launcher on the first host, with workers on all of them."""
    path = network.install_ssh(directory / "bin")
    return subprocess.Popen(
        [*network.hosts[0].enter, sys.executable, "-m", "engine.launch",
         f"--hosts={','.join(host.address for host in network.hosts)}", "--", "run_classifier.py",
         *arguments(flags)], cwd=ROOT, stderr=subprocess.PIPE, universal_newlines=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "",
             "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"})

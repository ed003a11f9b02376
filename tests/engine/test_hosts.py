"""Several hosts, each in a network namespace of its own: what workers do when a link or host fails.

`benchmarks/hosts.py` makes the hosts, and says where it cannot.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from benchmarks import hosts
from commands import arguments, run_here
from conftest import (ROOT, assert_same_training, checkpoint_values, on_tensorflow_1,
                      on_tensorflow_2, write_cola)
from processes import step_of
from workers import Worker, wait_for

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "hosts can be made")

HEARTBEAT_SECONDS = 3

# Runs a program in a host, as `ip netns exec` does, with what the process has loaded.
ENTER = """
import ctypes, runpy, sys
with open(f"/run/netns/{sys.argv[1]}") as namespace:
    assert ctypes.CDLL(None).setns(namespace.fileno(), 0) == 0
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def network(request):
    with hosts.Network(request.param) as made:
        yield made


def start(network, directory, program, **flags):
    """Starts a worker on each host."""
    addresses = [f"{host.address}:2222" for host in network.hosts]
    flags.update(heartbeat_timeout=HEARTBEAT_SECONDS)
    return [Worker(directory, ["-c", ENTER, host.namespace, program, *arguments(flags)], addresses,
                   index) for index, host in enumerate(network.hosts)]


@pytest.fixture
def workers(network, tmp_path):
    """A worker on each host; all have met, and wait."""
    started = start(network, tmp_path, "tests/helpers/toy_worker.py", call="hang",
                    arguments=json.dumps([str(tmp_path)]))
    for index in range(len(started)):
        wait_for(str(tmp_path / f"here{index}"), started)
    yield started
    for worker in started:
        worker.kill()
        worker.end()


def assert_ends_for_loss_of(victim, worker):
    ended = worker.end()
    assert ended.status == 193
    assert f"error: worker {victim} (10.77.0.{victim + 1}:2222) is lost: " in ended.said


@pytest.mark.parametrize("network", [3], indirect=True)
def test_a_cut_link_is_noticed_on_both_sides(network, workers):
    network.cut(network.hosts[0])
    for worker in workers[1:]:
        assert_ends_for_loss_of(0, worker)
    assert workers[0].end().status == 193


@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_slow_link_and_a_short_cut_are_borne(network, workers):
    network.slow_down(network.hosts[1], "64kbit")
    network.cut(network.hosts[0])
    time.sleep(HEARTBEAT_SECONDS / 4)
    network.mend(network.hosts[0])
    time.sleep(2 * HEARTBEAT_SECONDS)
    assert all(worker.is_running() for worker in workers)


@on_tensorflow_1
@pytest.mark.parametrize("network", [2], indirect=True)
def test_a_training_whose_link_is_cut_goes_on_from_its_last_checkpoint(
        network, tiny_model, tmp_path):
    config = tiny_model.config(num_hidden_layers=1, hidden_dropout_prob=0.1)
    (tmp_path / "config.json").write_text(config.to_json_string())
    flags = dict(tiny_model._asdict(), bert_config_file=tmp_path / "config.json", do_train=True,
                 task_name="cola", data_dir=write_cola(tmp_path / "cola", train=48),
                 max_seq_length=16, train_batch_size=2, num_train_epochs=2, learning_rate=1e-3,
                 save_checkpoints_steps=1)
    run_here({**flags, "output_dir": tmp_path / "whole", "num_cpu_replicas": 2})
    flags["output_dir"] = tmp_path / "out"
    network.slow_down(network.hosts[1], "4mbit")  # so that it is cut before the last step

    started = start(network, tmp_path, "run_classifier.py", **flags, num_cpu_replicas=1)
    while step_of(tmp_path / "out") < 3:
        assert all(worker.is_running() for worker in started), [each.said() for each in started]
        time.sleep(0.01)
    network.cut(network.hosts[1])
    for index, worker in enumerate(started):
        assert_ends_for_loss_of(1 - index, worker)
    assert step_of(tmp_path / "out") < 24
    run_here({**flags, "num_cpu_replicas": 2})
    assert_same_training(checkpoint_values(str(tmp_path / "whole")),
                         checkpoint_values(str(tmp_path / "out")))


@on_tensorflow_2
@pytest.mark.parametrize("network", [2], indirect=True)
def test_the_launcher_waits_for_a_link_and_starts_all_again(network, tmp_path):
    path = network.install_ssh(tmp_path / "bin")
    launcher = subprocess.Popen(
        [*network.hosts[0].enter, sys.executable, "-m", "engine.launch",
         f"--hosts={','.join(host.address for host in network.hosts)}", "--",
         "-m", "tests.helpers.toy_worker", "--call=hang_once",
         f"--arguments={json.dumps([str(tmp_path)])}",
         f"--heartbeat_timeout={HEARTBEAT_SECONDS}"],
        cwd=ROOT, stderr=subprocess.PIPE, universal_newlines=True,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"})
    try:
        while not all((tmp_path / f"here{index}").exists() for index in (0, 1)):
            assert launcher.poll() is None, launcher.communicate()
            time.sleep(0.02)
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
    assert "restart 1 of 3" in errors

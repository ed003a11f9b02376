"""Several hosts, each in a network namespace of its own: what workers do when a link or host fails.

`benchmarks/hosts.py` makes the hosts, and says where it cannot.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from benchmarks import hosts
from conftest import ROOT

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "hosts can be made")

# A worker that meets the others, says so, and waits. It needs no TensorFlow.
WAITING = """
import sys, time
from absl import flags
from engine import command, machines, peers
def main(values):
    us = peers.join(machines.from_environment(), 60, values.heartbeat_timeout)
    us.wait("all")
    sys.stdout.write("met\\n"); sys.stdout.flush()
    time.sleep(100)
values = flags.FlagValues()
flags.DEFINE_float("heartbeat_timeout", None, "", flag_values=values)
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

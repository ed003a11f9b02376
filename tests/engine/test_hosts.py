"""Several hosts, each in a network namespace of its own: what workers do when a link or host fails.

`tests/helpers/hosts.py` makes the hosts, and says where it cannot.
"""

import json
import os
import subprocess
import sys
import time

import pytest

import hosts
from commands import arguments
from conftest import ROOT
from processes import wait_until
from workers import Worker, wait_for

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "hosts can be made")

HEARTBEAT_SECONDS = 6

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
    with hosts.Network(request.param) as network:
        yield network


@pytest.fixture
def workers(network, tmp_path):
    """A worker on each host; all have met, and wait."""
    addresses = [f"{host.address}:2222" for host in network.hosts]
    flags = arguments(dict(call="hang", arguments=json.dumps([str(tmp_path)]),
                           heartbeat_timeout=HEARTBEAT_SECONDS))
    started = [Worker(tmp_path, ["-c", ENTER, host.namespace, "tests/helpers/toy_worker.py", *flags],
                      addresses, index) for index, host in enumerate(network.hosts)]
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
    time.sleep(HEARTBEAT_SECONDS / 8)
    network.mend(network.hosts[0])
    time.sleep(HEARTBEAT_SECONDS + 2)  # it would be noticed
    assert all(worker.is_running() for worker in workers)


@pytest.mark.parametrize("network", [2], indirect=True)
def test_the_script_waits_for_a_link_and_starts_all_again(network, tmp_path):
    path = network.install_ssh(tmp_path / "bin")
    script = subprocess.Popen(
        [*network.hosts[0].enter, "scripts/hosts.sh", ",".join(host.address for host in network.hosts),
         "-m", "tests.helpers.toy_worker", "--call=hang_once",
         f"--arguments={json.dumps([str(tmp_path)])}",
         f"--heartbeat_timeout={HEARTBEAT_SECONDS}"],
        cwd=ROOT, stderr=subprocess.PIPE, universal_newlines=True,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable})
    try:
        wait_until(script, lambda: all(
            (tmp_path / f"here{index}").exists() for index in (0, 1)))
        network.cut(network.hosts[1])
        lines = []
        while not lines or "status 193: starting again" not in lines[-1]:
            lines.append(script.stderr.readline())
            assert lines[-1], lines
        network.mend(network.hosts[1])
        _, errors = script.communicate(timeout=300)
    finally:
        script.terminate()
    assert script.returncode == 0, errors
    assert "error: worker 1 (10.77.0.2:29401) is lost" in "".join(lines)
    assert "restart 1 of 3" in lines[-1]

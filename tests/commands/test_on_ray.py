"""--ray_address: a Ray cluster of several nodes makes all parts, whatever dies on the way."""

import contextlib
import os
import signal
import sys
import threading

import pytest

import processes
from commands import arguments, ends_with_error, run_here
from conftest import sentences
from engine.disk import files
from masked_lm import write_tiny_masked_lm
from pretraining import score
from rows import assert_same_rows, rows_in
from runs import predict

COUNT = 6
MOST_SECONDS = 400  # of a command


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each, and the node that knows them."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install -r runs/requirements.txt")
    from ray.cluster_utils import Cluster
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # by default its processes wait for all others
        started = Cluster(initialize_head=True, head_node_args=dict(
            num_cpus=0, include_dashboard=False))
        for _ in range(2):
            add_node(started)
        yield started
        started.shutdown()


def add_node(cluster):
    # A command connects to a node: Ray 2.7 to one with the address of the latest, so each has its own.
    return cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{len(cluster.list_all_nodes()) + 1}")


@pytest.fixture(scope="module")
def work(tiny_classifier, tmp_path_factory):
    """A trained model and texts: the flags that predict for them, and the lines of one process."""
    folder = tmp_path_factory.mktemp("on_ray")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(2000)))
    flags = dict(output_dir=tiny_classifier, num_cpu_replicas=1, input_file=folder / "texts.txt",
                 header=False)
    run_here(dict(flags, output_file=folder / "whole.jsonl"), predict)
    return flags, rows_in([folder / "whole.jsonl"])


def parts_of(path):
    return [path.parent / f"{path.stem}-{index:05}-of-{COUNT:05}.jsonl" for index in range(COUNT)]


@contextlib.contextmanager
def started(cluster, flags, output_file, module="runs.predict"):
    """The command, in a process that ends with the context, at the latest after MOST_SECONDS."""
    process = processes.start(["-m", module, *arguments(dict(
        flags, output_file=output_file, ray_address=cluster.address, shards=COUNT))])
    limit = threading.Timer(MOST_SECONDS, process.kill)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def wait_for_parts(process, output_file, number):
    processes.wait_until(process, lambda: sum(path.exists() for path in parts_of(output_file)) >= number)


def workers(cluster):
    """The process numbers of the actors."""
    raylets = {process.process.pid for node in cluster.list_all_nodes()
               for process in node.all_processes.get("raylet", [])}
    numbers = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            with open(f"/proc/{number}/cmdline") as title, open(f"/proc/{number}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                if title.read().startswith("ray::_Worker") and parent in raylets:
                    numbers.append(int(number))
    return numbers


def test_all_parts_are_made_once_although_workers_a_node_and_the_driver_die(cluster, work, tmp_path):
    flags, whole = work
    output_file = tmp_path / "found.jsonl"
    with started(cluster, flags, output_file) as driver:
        wait_for_parts(driver, output_file, 1)
        driver.kill()
    parts = {path: path.stat().st_mtime_ns for path in parts_of(output_file) if path.exists()}
    assert 0 < len(parts) < COUNT
    oldest = min(cluster.worker_nodes, key=lambda node: node.node_ip_address)
    add_node(cluster)
    with started(cluster, flags, output_file) as driver:
        killed = set()
        for _ in range(3):
            processes.wait_until(driver, lambda: set(workers(cluster)) - killed)
            victim = max(set(workers(cluster)) - killed)
            killed.add(victim)
            os.kill(victim, signal.SIGKILL)
        wait_for_parts(driver, output_file, len(parts) + 1)
        cluster.remove_node(oldest, allow_graceful=False)
        output, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert output == "" and f"{COUNT} parts on " in errors and " lines/s" in errors
    assert_same_rows(rows_in(parts_of(output_file)), whole)
    assert all(path.stat().st_mtime_ns == time for path, time in parts.items())
    assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted([".json", ".jsonl"] * COUNT)


def test_a_line_that_cannot_be_read_fails_its_part_alone(cluster, tiny_model, tmp_path):
    lines = [text.encode() + b"\n" for text in sentences(40)]
    lines[0] = b"\xff\n"
    (tmp_path / "lines.txt").write_bytes(b"".join(lines))
    flags = dict(write_tiny_masked_lm(tiny_model, tmp_path / "lm")._asdict(), num_cpu_replicas=1,
                 max_seq_length=16, input_file=tmp_path / "lines.txt")
    output_file = tmp_path / "scores.jsonl"
    # Another process still writes a part: it is waited for.
    with started(cluster, flags, output_file, "pretraining.score") as driver:
        with files.written_alone(str(parts_of(output_file)[1])):
            wait_for_parts(driver, output_file, 1)
        output, errors = driver.communicate()
    assert driver.returncode == 2, errors
    assert output.startswith(f"0/{COUNT}\t") and output.count("\n") == 1 and "line 1" in output
    assert f"error: 1 of {COUNT} parts are missing, 0/{COUNT} because of: " in errors.splitlines()[-1]
    assert [path.exists() for path in parts_of(output_file)] == [False] + [True] * (COUNT - 1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:port"])
def test_an_address_without_a_cluster_is_one_line(address):
    pytest.importorskip("ray")
    process = processes.run(["-m", "pretraining.score", *arguments(dict(
        input_file="lines.txt", ray_address=address, shards=2))])
    assert process.returncode == 2 and process.stdout == ""
    assert f"error: --ray_address={address}: no Ray cluster can be reached" in process.stderr
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize("changes, expected", [
    (dict(shards=None), "--ray_address and --shards need each other"),
    (dict(ray_address=None), "--ray_address and --shards need each other"),
    (dict(shard="0/2"), "leave --shard and --check_shards out"),
    (dict(), "needs Ray: pip install -r runs/requirements.txt")])
def test_what_is_missing_is_named(changes, expected, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with ends_with_error(capsys, expected):
        run_here({**dict(input_file="lines.txt", ray_address="local", shards=2), **changes}, score)

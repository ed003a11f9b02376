"""`scripts/hosts.sh` with a program in place of ssh: what workers are told, when all restart."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

import processes
from conftest import ROOT, on_tensorflow_2

pytestmark = on_tensorflow_2  # the script and its workers load none

# Runs what it reads in a bare environment, on this machine.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
if [ "$2" != b ]; then echo "ssh: connect to host $2: No route to host" >&2; exit 255; fi
echo "$*" >> command_lines
exec env -i sh -c "$3 $4"
"""


@pytest.fixture
def start(tmp_path):
    """Starts the script with a toy worker's program, in an empty directory."""
    started = []

    def begin(program, hosts="localhost,localhost", **environment):
        (tmp_path / "ssh").write_text(SSH)
        (tmp_path / "ssh").chmod(0o755)
        (tmp_path / "worker.py").write_text(f"""
import json, os, signal, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
name = f"{{index}}.starts"
starts = os.path.getsize(name) if os.path.exists(name) else 0
open(name, "a").write("x")
{program}""")
        started.append(subprocess.Popen(
            [os.path.join(ROOT, "scripts", "hosts.sh"), hosts, "worker.py", "--flag=a b"],
            cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ROOT,
                 "PYTHON": sys.executable, **environment},
            # A background job's programs ignore SIGINT, and bash leaves what it finds ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers hold its output open
        process.communicate()


def ended(process):
    """Its status, output and errors."""
    output, errors = process.communicate(timeout=100)
    return process.returncode, output, errors


def starts(directory):
    return [len((directory / f"{index}.starts").read_text()) for index in (0, 1)]


def test_workers_on_other_machines_have_all_they_need_and_no_command_line_shows_it(start, tmp_path):
    status, output, errors = ended(start(
        "print(json.dumps([config, sys.argv[1:], os.environ.get('NCCL_DEBUG'), os.getcwd()]))", "me@a,b",
        PORT="5000", NCCL_DEBUG="IN FO"))
    assert status == 0, errors
    other, chief = sorted(output.splitlines())
    assert other.startswith("[b:1] ")
    for index, line in enumerate([chief, other[len("[b:1] "):]]):
        assert json.loads(line) == [
            {"cluster": {"worker": ["a:5000", "b:5001"]}, "task": {"type": "worker", "index": index}}, ["--flag=a b"],
            "IN FO", str(tmp_path)]
    shown = (tmp_path / "command_lines").read_text()
    assert "bash -s" in shown and not any(hidden in shown for hidden in ("IN FO", "TF_CONFIG", "5000"))


@pytest.mark.parametrize("statuses, restarts, status, times", [
    ((193, 137), 3, 0, 2), ((2, 2), 3, 2, 1), ((143, 143), 3, 143, 1), ((193, 193), 0, 193, 1)])
def test_all_start_again_after_a_loss_alone(statuses, restarts, status, times, start, tmp_path):
    code, _, errors = ended(start(f"sys.exit(0 if starts else {statuses}[index])", RESTARTS=str(restarts)))
    assert code == status, errors
    assert starts(tmp_path) == [times] * 2
    assert ("restart 1 of 3" in errors) == (times == 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_chief_and_none_restarts(number, start, tmp_path):
    """The chief, which tells the others to end, too."""
    process = start("""
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), open("told", "w").close(), sys.exit(143)))
open(f"{index}.ready", "w").close()
while not (index and os.path.exists("told")): time.sleep(0.01)""")
    processes.wait_until(process, lambda: all((tmp_path / f"{index}.ready").exists() for index in (0, 1)))
    process.send_signal(number)
    assert ended(process) == (143, "saved\n", "")
    assert starts(tmp_path) == [1, 1]


def test_the_status_is_the_chiefs_even_if_it_ends_with_the_signal(start, tmp_path):
    process = start("""
if index: sys.exit()
with open("draft", "w") as draft: draft.write(str(os.getpid()))
os.rename("draft", "pid")
signal.pause()""")
    processes.wait_until(process, lambda: (tmp_path / "pid").exists())
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert ended(process) == (143, "", "")


def test_a_machine_that_cannot_be_reached_is_named_before_any_worker_starts(start, tmp_path):
    status, _, errors = ended(start("", "a,b,c"))
    assert status == 2
    assert "error: no worker can be started on c: ssh must reach it without a password" in errors
    assert not (tmp_path / "0.starts").exists()


def test_without_a_command_it_says_what_it_takes():
    result = subprocess.run([os.path.join(ROOT, "scripts", "hosts.sh"), "a,b"], stderr=subprocess.PIPE, encoding="utf-8")
    assert (result.returncode, result.stderr) == (
        2, "error: give the machines, separated by commas, then a script and its flags\n")

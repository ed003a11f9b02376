"""The launcher with toy workers: what they are told, what their statuses lead to, how all end."""

import json
import os
import signal
import time

import pytest

import processes
from conftest import ROOT, on_tensorflow_2

pytestmark = on_tensorflow_2  # the launcher and its workers load none

OTHER_HOST = "198.51.100.1"  # an address for documentation, which no machine has

# What every toy worker begins with. `starts` counts its own earlier ones in the directory.
PREAMBLE = """
import json, os, signal, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
name = f"{index}.starts"
starts = os.path.getsize(name) if os.path.exists(name) else 0
open(name, "a").write("x")
def say(*values):  # at once: workers print to one pipe
    os.write(1, (" ".join(map(str, values)) + "\\n").encode())
def wait_for(index):
    while not os.path.exists(f"{index}.starts"):
        time.sleep(0.01)
"""


@pytest.fixture
def launch(tmp_path):
    """Starts the launcher with a toy worker's program, in an empty directory."""
    started = []
    program_of_launcher = (
        "import os\n"
        f"os.environ['PYTHONPATH'] = {ROOT!r}\n"
        "from engine import launch\n"
        "launch._REST_SECONDS, launch._LAST_WORDS_SECONDS, launch._FAILED_SECONDS = 2, 3, 0.5\n"
        "launch.start()")

    def start(program, *flags, **environment):
        (tmp_path / "worker.py").write_text(PREAMBLE + program)
        started.append(processes.start(
            ["-c", program_of_launcher, *flags, "--", "worker.py", "--flag=a b"],
            cwd=str(tmp_path), env={**os.environ, **environment}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """Its status, output and errors."""
    output, errors = process.communicate(timeout=100)
    return process.returncode, output, errors


def starts(directory):
    """How often each worker was started."""
    return {name: os.path.getsize(os.path.join(str(directory), name))
            for name in os.listdir(str(directory)) if name.endswith(".starts")}


def worker_of(process, directory):
    """The process id that a worker has written to its file."""
    path = directory / "pid"
    processes.wait_until(process, lambda: path.exists() and path.read_text())
    return path.read_text()


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_learn_who_they_are_share_the_cards_and_all_but_the_first_are_named_before_their_lines(
        launch):
    status, output, errors = ended(launch("""
say(os.environ['TF_CONFIG'], sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES'])
sys.stderr.write(f'said by {index}\\n')""", "--processes_per_host=2", "--port=5000",
        CUDA_VISIBLE_DEVICES="2,3"))
    assert status == 0, errors
    config = '{"cluster": {"worker": ["localhost:5000", "localhost:5001"]}, "task": {"type": ' \
        '"worker", "index": %d}} [\'--flag=a b\'] %d'
    assert sorted(output.splitlines()) == ["[localhost:1] " + config % (1, 3), config % (0, 2)]
    assert sorted(errors.splitlines()) == ["[localhost:1] said by 1", "said by 0"]


def test_a_status_that_a_restart_does_not_mend_ends_all(launch, tmp_path):
    """Worker 0 notices first that worker 1 has gone, which ends a little later than it vanishes."""
    code, _, errors = ended(launch("""
if index == 0: sys.exit(193)
wait_for(0)
time.sleep(0.5)
sys.exit(2)""", "--processes_per_host=2"))
    assert code == 2
    assert "WARNING: [localhost:1] ended with status 2\n" in errors
    assert starts(tmp_path) == {"0.starts": 1, "1.starts": 1}


@pytest.mark.parametrize("losses, status", [(1, 0), (2, 128 + signal.SIGKILL)])
def test_after_a_lost_worker_all_are_started_again(losses, status, launch, tmp_path):
    code, _, errors = ended(launch(f"""
if starts < {losses} and index == 1:
    wait_for(0)
    os.kill(os.getpid(), signal.SIGKILL)
if starts < {losses}:
    time.sleep(100)""", "--processes_per_host=2", "--max_restarts=1"))
    assert code == status
    assert errors.splitlines()[:2] == [
        "WARNING: [localhost:1] was ended by SIGKILL",
        "All workers restart from the last checkpoint: restart 1 of 1"]
    assert errors.count("was ended by SIGKILL") == losses
    assert starts(tmp_path) == {"0.starts": 2, "1.starts": 2}


def test_a_worker_that_does_not_end_is_killed(launch, tmp_path):
    code, _, _ = ended(launch("""
if index == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("pid", "w").write(str(os.getpid()))
    time.sleep(100)
while not os.path.exists("pid"): time.sleep(0.01)
sys.exit(2)""", "--processes_per_host=2"))
    assert code == 2
    assert not is_running((tmp_path / "pid").read_text())


def test_a_worker_that_is_stopped_after_its_last_step_does_not_keep_a_finished_run(launch, tmp_path):
    process = launch("""
if index:
    os.kill(os.getpid(), signal.SIGSTOP)
wait_for(1)
say("done")
""", "--processes_per_host=2")
    status, output, errors = ended(process)
    assert (status, output) == (0, "done\n")
    assert starts(tmp_path) == {"0.starts": 1, "1.starts": 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_workers_and_restarts_none(number, launch, tmp_path):
    process = launch("""
signal.signal(signal.SIGTERM, lambda *_: (say("saved"), sys.exit(143)))
open(f"{index}.ready", "w").close()
time.sleep(100)""", "--processes_per_host=2")
    processes.wait_until(process, lambda: all((tmp_path / f"{index}.ready").exists() for index in (0, 1)))
    process.send_signal(number)
    code, output, errors = ended(process)
    assert code == 128 + number
    assert sorted(output.splitlines()) == ["[localhost:1] saved", "saved"]
    assert errors == f"interrupted by {number.name}\n"
    assert starts(tmp_path) == {"0.starts": 1, "1.starts": 1}


def test_workers_end_when_the_launcher_is_killed(launch, tmp_path):
    process = launch("""
open("pid", "w").write(str(os.getpid()))
time.sleep(100)""")
    worker = worker_of(process, tmp_path)
    process.kill()
    while is_running(worker):
        time.sleep(0.02)


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A program of this name that runs what it is given in a bare environment, on this machine.

    While there is a file `cut`, it reaches no machine.
    """
    def install(reaches=OTHER_HOST):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f"""#!/bin/sh
echo "$*" >> {tmp_path}/command_lines
while [ "$1" = -T -o "$1" = -o ]; do [ "$1" = -o ] && shift; shift; done
[ "$1" = -- ] && shift
echo "$1" >> {tmp_path}/reached
if [ "$1" != {reaches} -o -e {tmp_path}/cut ]; then echo "ssh: connect to host $1: No route to host" >&2; exit 255; fi
exec env -i sh -c "$2"
""")
        (folder / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return install


def test_workers_on_other_machines_have_all_they_need_and_no_command_line_shows_it(
        launch, ssh, tmp_path):
    ssh()
    status, _, errors = ended(launch("""
lines = [open(f"/proc/{pid}/cmdline").read() for pid in (os.getpid(), os.getppid())]
with open(f"{index}.told", "a") as file:
    file.write(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:], lines]) + "\\n")
if starts == 0: os.kill(os.getpid(), signal.SIGKILL) if index == 0 else time.sleep(100)
""", f"--hosts=127.0.0.2,{OTHER_HOST}", NCCL_DEBUG="IN FO", TF_TOKEN_EXAMPLE="kept here",
        PATH_TO_KEY="kept here", NVIDIA_API_KEY="kept here"))
    assert status == 0, errors
    environment, directory, flags, lines = json.loads(
        (tmp_path / "1.told").read_text().splitlines()[-1])
    assert (directory, flags) == (str(tmp_path), ["--flag=a b"])
    assert environment["NCCL_DEBUG"] == "IN FO" and "kept here" not in environment.values()
    assert all(name in environment for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
               if name in os.environ)
    assert json.loads(environment["TF_CONFIG"])["cluster"] == {
        "worker": ["127.0.0.2:29400", f"{OTHER_HOST}:29400"]}
    shown = (tmp_path / "command_lines").read_text() + "".join(lines)
    for hidden in ("IN FO", "TF_CONFIG", "29400"):
        assert hidden not in shown


def test_a_worker_on_another_machine_ends_with_the_launcher(launch, ssh, tmp_path):
    ssh(f"me@{OTHER_HOST}")
    process = launch("""
if index == 0: sys.exit(0)
open("pid", "w").write(str(os.getpid()))
time.sleep(100)""", f"--hosts=127.0.0.2,me@{OTHER_HOST}")
    worker = worker_of(process, tmp_path)
    process.terminate()
    assert ended(process)[0] == 143
    assert not is_running(worker)


def test_a_machine_that_cannot_be_reached_is_named_before_any_worker_starts(launch, ssh, tmp_path):
    ssh()
    status, _, errors = ended(launch("", f"--hosts=127.0.0.2,{OTHER_HOST},198.51.100.2"))
    assert status == 2
    assert errors.startswith("error: no worker can be started on 198.51.100.2: ssh: connect to host "
                             "198.51.100.2: No route to host; ") and errors.count("\n") == 1
    assert starts(tmp_path) == {}


def test_a_restart_waits_until_the_machines_can_be_reached(launch, ssh, tmp_path):
    ssh()
    process = launch("""
if starts == 0 and index == 1:
    wait_for(0)
    open("cut", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
if starts == 0: time.sleep(100)""", f"--hosts=127.0.0.2,{OTHER_HOST}")
    reached = tmp_path / "reached"  # twice before the worker is lost, then in vain
    processes.wait_until(
        process, lambda: reached.exists() and len(reached.read_text().splitlines()) >= 4)
    assert starts(tmp_path) == {"0.starts": 1, "1.starts": 1}
    (tmp_path / "cut").unlink()
    status, _, errors = ended(process)
    assert status == 0 and "restart 1 of 3" in errors, errors
    assert starts(tmp_path) == {"0.starts": 2, "1.starts": 2}


@pytest.mark.parametrize("flags, words, said", [
    (["--hosts="], ["x.py"], "--hosts=: must be names"),
    (["--hosts=-oProxyCommand=touch x;@127.0.0.2"], ["x.py"], "none beginning with -"),
    (["--hosts=no-such-host.invalid"], ["x.py"], "--hosts: no-such-host.invalid: "),
    (["--hosts=node[1..4]"], ["x.py"], "--hosts: node[1..4]: "),
    (["--hosts=localhost,127.0.0.2"], ["x.py"], "cannot reach this machine as localhost"),
    (["--hosts=127.0.0.2,127.0.0.2"], ["x.py"], "127.0.0.2 more than once"),
    (["--processes_per_host=0"], ["x.py"], "--processes_per_host=0"),
    (["--host=a"], ["x.py"], "Unknown command line flag 'host'"),
    (["run_classifier.py", "--do_train"], [], "there is no command: give it after --")])
def test_bad_flags_end_in_one_line(flags, words, said):
    result = processes.run(["-m", "engine.launch", *flags, *(["--", *words] if words else [])])
    assert result.returncode == 2
    assert said in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_where_a_cluster_manager_starts_the_workers_the_launcher_does_not():
    result = processes.run(["-m", "engine.launch", "--", "x.py"],
                           env={**os.environ, "TF_CONFIG": "{}"})
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: TF_CONFIG is set")

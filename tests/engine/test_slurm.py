"""SLURM's variables, as srun sets them: hosts, processes and ports worked out by hand."""

import os
import subprocess
import sys

import pytest

from conftest import ROOT
from engine.errors import UserError
from engine.workers import cluster, slurm

# srun --nodes=2 --ntasks-per-node=1, in job 1000: its ports start at 16384 + 1000 % 256 * 64.
STEP = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "1000",
        "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize("text, hosts", [
    ("n1", ["n1"]), ("a,b.example.org", ["a", "b.example.org"]),
    ("n[01-03,07],x5", ["n01", "n02", "n03", "n07", "x5"]),
    ("n[9-11]", ["n9", "n10", "n11"]), ("n[099-100]", ["n099", "n100"]), ("n[5]", ["n5"]),
    ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
    ("tux[1,3],gpu-a[08-09]", ["tux1", "tux3", "gpu-a08", "gpu-a09"])])
def test_lists_of_hosts_are_expanded(text, hosts):
    assert slurm.expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", ",", "a,,b", "n[1-", "n1]", "n[]", "n[a-b]", "n[1-2", "a b",
                                  "n" * 5000 + "["])
def test_what_is_no_list_of_hosts_is_refused(text):
    with pytest.raises(ValueError, match="not a list of hosts"):
        slurm.expand_hosts(text)


@pytest.mark.parametrize("text, counts", [
    ("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,2(x2)", [4, 2, 2])])
def test_numbers_of_processes_are_expanded(text, counts):
    assert slurm.expand_counts(text) == counts


def test_a_process_for_each_machine_has_the_same_port_on_each():
    assert slurm.current_step(STEP) == slurm.Step(["n1:31232", "n2:31232"], 1, 0, 1, True)


def test_several_processes_on_a_machine_have_ports_in_a_row():
    step = slurm.current_step({
        **STEP, "SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1", "SLURM_LOCALID": "1",
        "SLURM_GPUS_PER_TASK": "1"})
    assert step == slurm.Step(["a:31232", "a:31233", "b:31232"], 1, 1, 2, False)


def test_processes_are_divided_evenly_where_their_numbers_are_not_given():
    step = slurm.current_step({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "4",
                               "SLURM_PROCID": "2", "SLURM_JOB_ID": "0"})
    assert step.addresses == ["n1:16384", "n1:16385", "n2:16384", "n2:16385"]
    assert (step.local_index, step.local_processes) == (0, 2)


def test_steps_of_a_job_and_jobs_in_a_row_have_other_ports():
    first = [slurm.current_step({**STEP, **changes}).addresses[0] for changes in (
        {}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "1001"})]
    assert first == ["n1:31232", "n1:16832", "n1:31296"]


@pytest.mark.parametrize("environment", [
    {},
    # The batch script's own process, and one in a shell of salloc.
    {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NODELIST": "n[1-8]"},
    {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"},
    # An interactive step: one process, in a job of eight.
    {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}])
def test_a_process_that_is_alone_has_no_step(environment):
    assert slurm.current_step(environment) is None


@pytest.mark.parametrize("changes, said", [
    ({"SLURM_STEP_NODELIST": "n[1-"}, "not a list of hosts"),
    ({"SLURM_STEP_TASKS_PER_NODE": "two"}, "not a list of numbers"),
    ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, r"on 2 machines there are [2, 2]"),
    ({"SLURM_PROCID": "2"}, "out of range"), ({"SLURM_PROCID": "x"}, "invalid literal"),
    ({"SLURM_PROCID": "-1"}, "less than 0"), ({"SLURM_STEP_NODELIST": "n1,n1"}, "named twice"),
    ({"SLURM_STEP_NODELIST": "n[5-1]"}, "5-1 is no range"),
    *(({"SLURM_STEP_NODELIST": nodes}, "more than 4096 processes")
      for nodes in ("n[0-99999999]", "n[1-999][1-999][1-999]")),
    ({"SLURM_STEP_TASKS_PER_NODE": "1(x999999999)"}, "more than 4096 processes"),
    ({"SLURM_STEP_NODELIST": "a", "SLURM_STEP_NUM_TASKS": "999999999",
      "SLURM_STEP_TASKS_PER_NODE": "999999999"}, "more than 4096 processes"),
    # srun --distribution=cyclic: 0 and 2 on the first machine, 1 and 3 on the second.
    ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_LOCALID": "0"},
     "srun --distribution=block")])
def test_variables_that_do_not_fit_together_are_refused(changes, said):
    with pytest.raises(UserError) as caught:
        slurm.current_step({**STEP, **changes})
    assert said in str(caught.value) and "set TF_CONFIG instead" in str(caught.value)


def test_a_run_without_tf_config_has_the_processes_of_its_step_and_their_cards():
    environment = {**STEP, "SLURM_STEP_NODELIST": "a", "SLURM_STEP_TASKS_PER_NODE": "2",
                   "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    assert cluster.from_environment(environment) == cluster.Cluster(("a:31232", "a:31233"), 1)
    assert environment["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert cluster.from_environment(environment) == cluster.ALONE


def test_cards_that_srun_has_shared_out_are_kept():
    environment = {**STEP, "SLURM_STEP_NODELIST": "a", "SLURM_STEP_TASKS_PER_NODE": "2",
                   "SLURM_LOCALID": "1", "SLURM_GPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "0,1"}
    cluster.from_environment(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_tf_config_says_more_than_slurm():
    environment = {**STEP, "TF_CONFIG": "{}"}
    for _ in range(2):
        assert cluster.from_environment(environment) == cluster.ALONE


def run_script(directory, program, **environment):
    """`scripts/slurm.sh` with an srun that starts two processes on this machine.

    As SLURM's, it ends with the highest status.
    """
    (directory / "srun").write_text("""#!/bin/bash
echo "$*" >> srun.log
while [[ $1 == --* ]]; do shift; done
for number in 0 1; do
  SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 \\
    SLURM_PROCID=$number SLURM_LOCALID=$number SLURM_JOB_ID=7 SLURM_STEP_ID=0 "$@" &
  started[number]=$!
done
for number in 0 1; do
  wait "${started[number]}"
  ended=$?
  status=$((ended > status ? ended : status))
done
exit "$status"
""")
    (directory / "srun").chmod(0o755)
    (directory / "worker.py").write_text(f"""
import os, sys
from engine.workers import cluster
worker = cluster.from_environment()
name = f"{{worker.index}}.starts"
starts = os.path.getsize(name) if os.path.exists(name) else 0
open(name, "a").write("x")
{program}""")
    return subprocess.run(
        ["bash", os.path.join(ROOT, "scripts", "slurm.sh"), "worker.py", "--flag=a b"],
        cwd=str(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        env={**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
             "PYTHONPATH": ROOT, "PYTHON": sys.executable, **environment})


def test_the_script_starts_the_processes_of_a_step(tmp_path):
    result = run_script(
        tmp_path, "sys.stdout.write(f'{worker.addresses} {worker.index} {sys.argv[1:]}\\n')")
    assert result.returncode == 0, result.stderr
    # 16384 + 7 * 64, by hand
    assert sorted(result.stdout.splitlines()) == [
        f"('localhost:16832', 'localhost:16833') {index} ['--flag=a b']" for index in (0, 1)]


@pytest.mark.parametrize("statuses, ended, starts", [
    ((193, 137), 0, 2), ((2, 2), 2, 1), ((1, 0), 1, 1), ((143, 143), 143, 1)])
def test_the_script_starts_all_again_after_a_loss_alone(statuses, ended, starts, tmp_path):
    result = run_script(tmp_path, f"sys.exit(0 if starts else {statuses}[worker.index])")
    assert result.returncode == ended, result.stderr
    assert [(tmp_path / f"{index}.starts").read_text() for index in (0, 1)] == ["x" * starts] * 2


def test_the_script_gives_up_after_some_restarts(tmp_path):
    result = run_script(tmp_path, "sys.exit(193)", RESTARTS="1")
    assert (result.returncode, (tmp_path / "0.starts").read_text()) == (193, "xx")
    assert result.stderr == ("status 193: starting again from the last checkpoint, restart 1 of 1\n")

"""`scripts/slurm.sh` with programs in place of SLURM's: whom the workers meet, when all restart."""

import os
import subprocess
import sys

import pytest

import run_classifier
from conftest import ROOT
from engine.cli import device_flags
from engine.errors import UserError

# SLURM numbers the processes machine by machine. srun ends with the highest status.
PROGRAMS = {
    "scontrol": """[ "$*" = "show hostnames n[1-2]" ] && printf 'n1\\nn2\\n'""",
    "srun": """while [[ $1 == --* ]]; do shift; done
count=$((2 * SLURM_NTASKS_PER_NODE))
for ((number = 0; number < count; number++)); do
  SLURM_PROCID=$number "$@" &
  started[number]=$!
done
for ((number = 0; number < count; number++)); do
  wait "${started[number]}"
  ended=$?
  status=$((ended > status ? ended : status))
done
exit "$status" """}


def run_script(directory, program, **environment):
    """Runs the script on two machines with a toy worker's program."""
    for name, text in PROGRAMS.items():
        (directory / name).write_text(f"#!/bin/bash\n{text}\n")
        (directory / name).chmod(0o755)
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
             "PYTHONPATH": ROOT, "PYTHON": sys.executable, "SLURM_JOB_ID": "1000",
             "SLURM_NODELIST": "n[1-2]", "SLURM_NTASKS_PER_NODE": "1", **environment})


# The ports of job 1000 start at 16384 + 1000 % 256 * 64, by hand.
@pytest.mark.parametrize("on_each, addresses", [
    (1, ("n1:31232", "n2:31232")), (2, ("n1:31232", "n1:31233", "n2:31232", "n2:31233"))])
def test_each_process_learns_who_it_is(on_each, addresses, tmp_path):
    result = run_script(
        tmp_path, "sys.stdout.write(f'{worker.index} {worker.addresses} {sys.argv[1:]}\\n')",
        SLURM_NTASKS_PER_NODE=str(on_each))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"{index} {addresses} ['--flag=a b']" for index in range(2 * on_each)]


@pytest.mark.parametrize("statuses, restarts, ended, starts", [
    ((193, 137), 3, 0, 2), ((2, 2), 3, 2, 1), ((1, 0), 3, 1, 1), ((143, 143), 3, 143, 1),
    ((193, 193), 0, 193, 1)])
def test_all_start_again_after_a_loss_alone(statuses, restarts, ended, starts, tmp_path):
    result = run_script(tmp_path, f"sys.exit(0 if starts else {statuses}[worker.index])",
                        RESTARTS=str(restarts))
    assert result.returncode == ended, result.stderr
    assert [(tmp_path / f"{index}.starts").read_text() for index in (0, 1)] == ["x" * starts] * 2
    assert ("restart 1 of 3" in result.stderr) == (starts == 2)


def test_processes_that_srun_starts_without_tf_config_do_not_each_train_alone(monkeypatch):
    values = run_classifier.define_flags()
    values(["", "--do_train", "--num_cpu_replicas=1"])
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(UserError, match="srun has started 2 processes.*scripts/slurm.sh"):
        device_flags.join_workers(values)

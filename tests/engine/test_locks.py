"""One process at a time writes an output, and the death of a process frees what it locked."""

import errno
import os
import re
import shutil
import subprocess

import pytest

import processes
from commands import arguments, on_cola, start_command
from engine.disk import scratch
from engine.errors import UserError
from processes import step_of

# Adds 1 to a file that is read and written again, with time for others to do so in between.
ADD = """
import sys, time
from engine.disk import scratch
from engine.errors import UserError
added = 0
while added < 20:
    try:
        with scratch.exclusive(sys.argv[1] + ".lock", sys.argv[1]):
            with open(sys.argv[1]) as file:
                number = int(file.read())
            time.sleep(0.001)
            with open(sys.argv[1], "w") as file:
                file.write(str(number + 1))
            added += 1
    except UserError:
        pass
"""


def test_no_two_processes_are_in_it_at_a_time_although_its_file_comes_and_goes(tmp_path):
    (tmp_path / "number").write_text("0")
    writers = [processes.start(["-c", ADD, str(tmp_path / "number")]) for _ in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "60"
    assert os.listdir(str(tmp_path)) == ["number"]


@pytest.fixture
def without_locks(monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(scratch.fcntl, "flock", refuse)


def test_on_a_disk_without_locks_the_later_process_has_the_output_and_both_say_so(
        tmp_path, without_locks, capsys, monkeypatch):
    lock, held_by_other = tmp_path / "lock", {}
    with scratch.exclusive(str(lock), "answers.tsv"):
        scratch.check_owner()
        assert "WARNING: the disk of" in capsys.readouterr().err
        first = lock.read_text()
        lock.unlink()
        scratch.check_owner()  # nobody else has it
        lock.write_text(first)
        with monkeypatch.context() as other:
            other.setattr(scratch, "_held", held_by_other)
            later = scratch.exclusive(str(lock), "answers.tsv")
            later.__enter__()
            assert f"process {os.getpid()} on " in capsys.readouterr().err
            scratch.check_owner()
        with pytest.raises(UserError, match="answers.tsv is being written by process .*, which began later"):
            scratch.check_owner()
    assert lock.read_text() not in ("", first), "it is the later one's"
    lock.write_text("")
    lock.write_text(first)  # as of a process that was killed
    with scratch.exclusive(str(lock), "answers.tsv"):
        scratch.check_owner()


def test_a_disk_without_locks_is_written_and_left_without(tmp_path, without_locks):
    with scratch.exclusive(str(tmp_path / "lock"), "answers.tsv"):
        pass
    assert not os.listdir(str(tmp_path))


REFUSING = """
#include <errno.h>
int flock(int descriptor, int operation) { errno = ENOLCK; return -1; }
"""


def test_of_two_trainings_in_a_folder_without_locks_one_ends(tiny_model, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("there is no C compiler")
    (tmp_path / "flock.c").write_text(REFUSING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "flock.so"),
                    str(tmp_path / "flock.c")], check=True)
    out = tmp_path / "out"
    flags = arguments(on_cola(tiny_model, tmp_path, num_train_epochs=100_000, save_checkpoints_steps=3))
    first = start_command(*flags, LD_PRELOAD=str(tmp_path / "flock.so"))
    processes.wait_until(first, lambda: step_of(out))
    for name in ("task.json", "vocab.txt", "run.json"):
        (out / name).unlink()
    second = start_command(*flags, LD_PRELOAD=str(tmp_path / "flock.so"))
    said = first.communicate()[1]
    assert first.returncode == 2 and "Traceback" not in said
    assert said.count("has no locks") == 1
    assert re.match(f"error: --output_dir={out} is being written by process {second.pid} on ", said.splitlines()[-1])
    step = step_of(out)
    processes.wait_until(second, lambda: step_of(out) > step)
    second.terminate()
    assert second.wait() == 143 and {"task.json", "vocab.txt", "run.json"} < set(os.listdir(str(out)))

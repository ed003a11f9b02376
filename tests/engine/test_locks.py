"""One process at a time writes an output, and the death of a process frees what it locked."""

import errno
import os

import pytest

import processes
from engine.disk import scratch
from engine.errors import UserError

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


def test_a_disk_without_locks_is_written_with_a_warning_and_left_without(tmp_path, without_locks, capsys):
    with scratch.exclusive(str(tmp_path / "lock"), "answers.tsv"):
        assert "has no locks, which would keep two processes from writing answers.tsv" in capsys.readouterr().err
    assert not os.listdir(str(tmp_path))


def test_who_holds_a_lock_is_named(tmp_path):
    path = str(tmp_path / "lock")
    with scratch.exclusive(path, "answers.tsv"), pytest.raises(
            UserError, match=f"answers.tsv is being written by process {os.getpid()} on "):
        with scratch.exclusive(path, "answers.tsv"):
            pass

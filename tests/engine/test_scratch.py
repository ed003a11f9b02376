"""Temporary working folders are removed, also those of killed processes."""

import contextlib
import os
import signal

import pytest

import processes
from engine import interruption
from engine.disk import files, scratch

HOLD = """
import sys, time
from engine.disk import files, scratch
with scratch.folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def test_a_folder_of_a_killed_process_is_removed_and_one_in_use_is_not(tmp_path):
    others = [tmp_path / name for name in (".bert-tmp-notes", "mine.tmp-2", "notes.tmp-20240101")]
    for other in others:
        other.mkdir()
    holders = [processes.start(["-c", HOLD, str(tmp_path)]) for _ in range(2)]
    killed, used = [holder.stdout.readline().strip() for holder in holders]
    holders[0].kill()
    holders[0].wait()
    assert os.path.isdir(killed) and os.path.isdir(used)
    os.mkdir(f"{killed}.{holders[0].pid}")  # as if it were killed before it locked one
    others.append(tmp_path / os.path.basename(f"{used}.{holders[1].pid}"))
    others[-1].mkdir()
    with scratch.folder(str(tmp_path)) as own:
        assert sorted(os.path.join(str(tmp_path), name) for name in os.listdir(str(tmp_path))) == (
            sorted([own, used, *map(str, others)]))
    assert not os.path.exists(own)
    for holder in holders:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_another_process_publishes_at_the_same_moment_is_whole(is_there, tmp_path):
    path = str(tmp_path / "store")

    def write(author, replaces=True):
        with files.atomic_folder(path, replaces=replaces) as draft:
            files.write_text(os.path.join(draft, author), "")
            if author == "this":
                write("other")

    if is_there:
        write("earlier")
    write("this", replaces=is_there)
    assert os.listdir(path) == ["this" if is_there else "other"]
    assert os.listdir(str(tmp_path)) == ["store"]


@pytest.mark.parametrize("is_swapped", [True, False])
def test_a_folder_that_is_replaced_is_there_whatever_signal_comes(is_swapped, tmp_path, monkeypatch):
    path, rename = str(tmp_path / "export"), os.rename
    with files.atomic_folder(path) as draft:
        files.write_text(os.path.join(draft, "earlier"), "")
    if not is_swapped:  # as on a disk that swaps no folders
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)

    def interrupted(source, target):
        rename(source, target)
        if source == path:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "rename", interrupted)
    with contextlib.nullcontext() if is_swapped else pytest.raises(interruption.Interrupted):
        with interruption.InterruptNow(), files.atomic_folder(path) as draft:
            files.write_text(os.path.join(draft, "this"), "")
    assert os.listdir(path) == ["this" if is_swapped else "earlier"]
    assert os.listdir(str(tmp_path)) == ["export"]

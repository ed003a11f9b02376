"""Temporary working folders are removed, also those of killed processes."""

import os
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT
from engine.disk import files, scratch

HOLD = """
import sys, time
from engine.disk import files, scratch
with scratch.folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def leave(directory):
    """The temporary folder of a process that has ended without removing it."""
    process = os.fork()
    if not process:
        with scratch.folder(str(directory)):
            os._exit(0)
    os.waitpid(process, 0)
    name, = [name for name in os.listdir(str(directory)) if name.startswith(scratch.PREFIX)]
    return directory / name


def test_what_was_to_be_replaced_is_put_back_but_not_through_a_link(tmp_path):
    """Whoever makes such a folder could else have files moved out of places of others."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text("")
    left = leave(tmp_path)
    os.symlink(str(tmp_path / "elsewhere"), str(left / f"{scratch.PREFIX}replaced"))
    with scratch.folder(str(tmp_path)):
        assert not left.exists()
    assert os.listdir(str(tmp_path)) == ["elsewhere"]
    scratch._remove_leftovers.cache_clear()  # as in another process
    left = leave(tmp_path)
    scratch.move_into(str(tmp_path / "elsewhere"), str(left))
    with scratch.folder(str(tmp_path)):
        assert not left.exists()
    assert os.listdir(str(tmp_path)) == ["elsewhere"]
    assert os.listdir(str(tmp_path / "elsewhere")) == ["key"]


def test_a_folder_of_a_killed_process_is_removed_and_one_in_use_is_not(tmp_path):
    others = [tmp_path / name for name in (".bert-tmp-notes", "mine.tmp-2", "notes.tmp-20240101")]
    for other in others:
        other.mkdir()
    holders = [subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT,
                                stdout=subprocess.PIPE, universal_newlines=True)
               for _ in range(2)]
    killed, used = [holder.stdout.readline().strip() for holder in holders]
    holders[0].kill()
    holders[0].wait()
    assert os.path.isdir(killed) and os.path.isdir(used)
    with scratch.folder(str(tmp_path)) as own:
        assert sorted(os.path.join(str(tmp_path), name) for name in os.listdir(str(tmp_path))) == (
            sorted([own, used, *map(str, others)]))
    assert not os.path.exists(own)
    for holder in holders:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("is_moved_first", [True, False])
def test_a_folder_that_another_process_replaces_at_the_same_moment_is_whole(
        is_moved_first, tmp_path, monkeypatch):
    path, move = str(tmp_path / "store"), scratch.move_into

    def write(author):
        with files.atomic_folder(path) as draft:
            files.write_text(os.path.join(draft, author), "")

    def move_while_another_replaces(path, own):
        monkeypatch.setattr(scratch, "move_into", move)
        if is_moved_first:
            move(path, own)
            write("other")
        else:
            shutil.rmtree(path)
            move(path, own)

    write("earlier")
    monkeypatch.setattr(scratch, "move_into", move_while_another_replaces)
    write("this")
    assert os.listdir(path) == ["other" if is_moved_first else "this"]
    assert os.listdir(str(tmp_path)) == ["store"]

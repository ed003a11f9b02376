"""Nothing is lost when a disk is full or fails, a process is killed, or the power goes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import processes
from commands import arguments, on_cola, run_command, start_command
from conftest import ROOT, on_tensorflow_1
from engine.disk import scratch
from faulty_disk import library, read_log

# Of what is not put in place: these, and what is written as it grows.
NOT_PUT = re.compile(re.escape(scratch.PREFIX) + r"|tfevents|\.part$|\.lock$")


def lost_by_a_power_cut(operations):
    """What a power cut at the worst moment could lose of files that are in place.

    A file must be synced before it, or one beside it, gets its name; the name must be synced
    before the process ends.
    """
    unsynced, unsynced_names, lost = set(), set(), []
    for operation, path, other in operations:
        if operation == "write":
            unsynced.add(path)
        elif operation == "sync":
            unsynced.discard(path)
            unsynced_names.discard(path)
        elif operation == "remove":
            unsynced.discard(path)
        elif operation == "rename":
            inside = {name for name in unsynced if name == path or name.startswith(f"{path}/")}
            unsynced = unsynced - inside | {other + name[len(path):] for name in inside}
            if not NOT_PUT.search(other):
                unsynced_names.add(os.path.dirname(other))
                lost += [f"{name}, when {other} was named" for name in unsynced
                         if not NOT_PUT.search(name)
                         and os.path.dirname(name).startswith(os.path.dirname(other))]
    return lost + [f"the names in {name}" for name in unsynced_names]


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    path = library(str(tmp_path_factory.mktemp("library")))
    if not path:
        pytest.skip("there is no C compiler")
    return path


def environment(library_path, directory, **settings):
    """The variables of a command whose operations below a directory are counted or logged."""
    return {"LD_PRELOAD": library_path, "FAULTS_DIRECTORY": os.path.realpath(str(directory)),
            **{f"FAULTS_{name.upper()}": str(value) for name, value in settings.items()}}


@pytest.fixture
def fast_folder(tmp_path):
    """In memory where that is possible: hundreds of cases, each of which syncs files."""
    folder = f"/dev/shm/faults-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError:
        yield str(tmp_path)
        return
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


@on_tensorflow_1
def test_whatever_operation_of_the_file_layer_fails_or_is_the_last_one(faults, fast_folder):
    """Each file is then as it was or as it shall be, and the same program goes on."""
    process = subprocess.run(
        [sys.executable, os.path.join(ROOT, "tests", "helpers", "fault_scenario.py"), faults,
         os.path.join(fast_folder, "case")], env={**os.environ, "LD_PRELOAD": faults},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["wrong"] == []
    # Most operations that fail end in one line; all that the process is killed at end it.
    assert result["ended"]["killed"] == result["cases"] // 3 > 90
    assert result["ended"]["one line"] > 100


@pytest.fixture
def flags(tiny_model, tmp_path):
    """The flags of 12 steps that end with an evaluation and an export."""
    return on_cola(tiny_model, tmp_path, dev=9, do_eval=True, do_export=True, num_train_epochs=2,
                   save_checkpoints_steps=4)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on_and_syncs_what_it_puts_in_place(
        faults, flags, tmp_path):
    out = tmp_path / "out"
    full = run_command(*arguments(flags), **environment(
        faults, out, match="model.ckpt-8", n=4, error=28))
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    line = full.stderr.splitlines()[-1]
    assert line.startswith(f"error: {out}/model.ckpt-8: No space left on device; existing files")
    again = run_command(*arguments(flags), **environment(faults, out, log=tmp_path / "log"))
    assert again.returncode == 0, again.stderr
    assert "model.ckpt-4 (step 4)" in again.stderr
    assert (out / "export" / "saved_model.pb").exists()
    assert lost_by_a_power_cut(read_log(str(tmp_path / "log"))) == []


@pytest.mark.parametrize("draft, flags_of_phase", [
    ("store/.bert-tmp-*/train-*", dict(do_eval=None, do_export=None)),
    ("out/.bert-tmp-*/export", dict(do_train=None, do_eval=None))])
def test_a_command_told_to_end_while_it_writes_leaves_nothing_half_written(
        draft, flags_of_phase, flags, tiny_classifier, tmp_path):
    if "do_train" in flags_of_phase:
        shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    with open(os.path.join(flags["data_dir"], "train.tsv"), "a") as file:
        file.write("x\t1\t\tthe cat sees a dog\n" * 300_000)
    before = sorted(tmp_path.rglob("*"))
    # glob.glob passes over a folder that is renamed while it looks; Path.glob raises.
    process = start_command(*arguments({**flags, "store_dir": tmp_path / "store", **flags_of_phase}),
                            code=processes.strike(signal.SIGTERM, f"glob.glob({str(tmp_path / draft)!r})"))
    said = process.communicate()[1]
    assert process.returncode == 143, said
    assert said.splitlines()[-1].startswith("interrupted by SIGTERM") and "Traceback" not in said
    folders = {"store", "out", "hashes.json"}
    assert [path for path in tmp_path.rglob("*")
            if path not in before and path.name not in folders] == []


def test_what_is_renamed_before_it_is_synced_would_be_noticed(tmp_path):
    log = tmp_path / "log"
    written = "write\t/a/.bert-tmp-1/x\t\n"
    log.write_text(f"{written}rename\t/a/.bert-tmp-1/x\t/a/x\n")
    assert lost_by_a_power_cut(read_log(str(log))) == ["/a/x, when /a/x was named", "the names in /a"]
    log.write_text(f"{written}sync\t/a/.bert-tmp-1/x\t\nrename\t/a/.bert-tmp-1/x\t/a/x\n"
                   "sync\t/a\t\n")
    assert lost_by_a_power_cut(read_log(str(log))) == []

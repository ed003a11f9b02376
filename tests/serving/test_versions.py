"""Numbered versions of an export: how they are written, and taken over by a served model."""

import os
import shutil
import threading
import time

import numpy as np
import pytest
from absl import flags

from commands import ends_with_error, run_here
from conftest import checkpoint_values, on_tensorflow_1
from engine.checkpoints import checkpoints
from engine.cli import device_flags
from runs.rows import Example
from serving import model
from serving.model import Deadline, ServedModel

SECONDS = 60.0


def export(folder, version):
    run_here(dict(output_dir=folder, do_export=True, export_version=version))


def with_bias(trained, folder, bias):
    """A copy of a training whose checkpoint has another bias: its probabilities tell it apart."""
    shutil.copytree(str(trained), str(folder))
    prefix = checkpoints.open_checkpoint(str(folder)).path
    checkpoints.write_checkpoint(prefix, {
        **checkpoint_values(prefix), "output_bias": np.array([0, bias], np.float32)})
    return folder


@pytest.fixture(scope="module")
def exported(tiny_classifier, tmp_path_factory):
    """A training with versions 1 and 2, which say "0" and "1" to everything, and the folder of 2."""
    root = tmp_path_factory.mktemp("versions")
    first = with_bias(tiny_classifier, root / "first", -50.0)
    second = with_bias(tiny_classifier, root / "second", 50.0)
    export(first, "next")
    export(second, "2")
    return first, second / "export" / "2"


@pytest.fixture
def served(exported, tmp_path):
    """A model of a folder with version 1, and a function that puts a folder there as a version."""
    first, second = exported
    shutil.copytree(str(first / "export"), str(tmp_path / "models"))
    values = flags.FlagValues()
    model.define_flags(values)
    values(["", "--num_cpu_replicas=2"])
    found = ServedModel("toy", str(tmp_path / "models"), values,
                        device_flags.find_devices(values, training=False))

    def put(number, folder=second):
        shutil.copytree(str(folder), str(tmp_path / "draft"))
        os.rename(str(tmp_path / "draft"), str(tmp_path / "models" / number))

    yield found, put
    found.close()


def labels_of(served, count=3):
    results = served.answer([Example("the cat", None, None)] * count, truncate=False,
                            deadline=Deadline(SECONDS))
    return "".join(result.entry["label"] for result in results)


def test_versions_stand_beside_each_other_and_none_is_replaced(exported, tmp_path, capsys):
    first, _ = exported
    shutil.copytree(str(first), str(tmp_path / "out"))
    with ends_with_error(capsys, "--export_version=1", "is there already", "next"):
        export(tmp_path / "out", "1")
    for wrong in ("0", "-1", "1.5", "latest", "../1"):
        with ends_with_error(capsys, f"--export_version={wrong}", "a number from 1 on, or next"):
            export(tmp_path / "out", wrong)
    with ends_with_error(capsys, "holds numbered versions", "--export_version=next"):
        export(tmp_path / "out", None)
    with ends_with_error(capsys, "--export_version needs --do_export"):
        run_here(dict(output_dir=tmp_path / "out", do_eval=True, export_version="next"))
    export(tmp_path / "out", "7")
    export(tmp_path / "out", "next")
    assert sorted(name for name in os.listdir(str(tmp_path / "out" / "export"))
                  if not name.startswith(".")) == ["1", "7", "8"]
    shutil.rmtree(str(tmp_path / "out" / "export"))
    export(tmp_path / "out", None)
    with ends_with_error(capsys, "holds no numbered versions but something else"):
        export(tmp_path / "out", "next")


@on_tensorflow_1
def test_a_newer_version_is_taken_over_under_load_without_a_dropped_or_mixed_answer(served):
    found, put = served
    answers, errors, stop = [[] for _ in range(4)], [], threading.Event()

    def ask(own):
        while not stop.is_set():
            try:
                own.append(labels_of(found))
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=ask, args=(own,)) for own in answers]
    for thread in threads:
        thread.start()
    put("2")
    assert found.take_over() and found.current.number == "2"
    last = [len(own) for own in answers]
    while any(len(own) < count + 3 for own, count in zip(answers, last)) and not errors:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join(SECONDS)
    assert not errors
    for own in answers:  # each caller gets answers of version 1, then of version 2
        assert own == sorted(own) and set(own) == {"000", "111"}


def test_a_broken_version_is_logged_once_and_the_old_one_goes_on(served, tmp_path, exported, capfd):
    found, put = served
    broken = tmp_path / "broken"
    shutil.copytree(str(exported[1]), str(broken))
    with open(str(broken / "variables" / "variables.data-00000-of-00001"), "r+b") as file:
        file.truncate(100)
    put("2", broken)
    capfd.readouterr()
    assert not found.take_over() and not found.take_over()
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and "2 is not taken over, and version 1 goes on" in said[0]
    assert (found.current.number, labels_of(found)) == ("1", "000")
    put("3")
    assert found.take_over() and not found.take_over() and labels_of(found) == "111"


def test_a_version_that_is_copied_file_by_file_is_taken_over_when_it_is_whole(
        served, tmp_path, exported, capfd):
    found, _ = served
    target, weights = tmp_path / "models" / "2", "variables/variables.data-00000-of-00001"
    capfd.readouterr()
    os.mkdir(str(target))
    assert not found.take_over() and not found.take_over()
    shutil.rmtree(str(target))
    shutil.copytree(str(exported[1]), str(target))
    os.remove(str(target / weights))
    assert not found.take_over() and labels_of(found) == "000"
    shutil.copyfile(str(exported[1] / weights), str(target / weights))
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert found.take_over() and labels_of(found) == "111"


def test_a_watched_folder_is_looked_at_by_itself(served, monkeypatch):
    found, put = served
    monkeypatch.setattr(model, "_WATCH_SECONDS", 0.01)
    found.watch()
    put("2")
    until = time.monotonic() + SECONDS
    while found.current.number != "2" and time.monotonic() < until:
        time.sleep(0.01)
    assert labels_of(found) == "111"


def test_at_the_start_the_newest_version_that_opens_is_served(exported, tmp_path, capfd):
    shutil.copytree(str(exported[0] / "export"), str(tmp_path / "models"))
    os.mkdir(str(tmp_path / "models" / "2"))
    values = flags.FlagValues()
    model.define_flags(values)
    values(["", "--num_cpu_replicas=1"])
    found = ServedModel("toy", str(tmp_path / "models"), values,
                        device_flags.find_devices(values, training=False))
    assert found.current.number == "1" and "the version before it is served" in capfd.readouterr().err
    assert found.current.card.startswith("# ")
    found.close()

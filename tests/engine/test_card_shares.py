"""Each of a machine's processes takes its share of the cards that CUDA_VISIBLE_DEVICES shows."""

import os

import pytest

from engine.errors import UserError
from engine.cli import worker_main


def taken(visible, processes):
    """What each of a machine's processes sees; None: all that there is."""
    environments = [{} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
                    for _ in range(processes)]
    for index, environment in enumerate(environments):
        worker_main.take_cards(environment, index, processes)
    return [environment.get("CUDA_VISIBLE_DEVICES") for environment in environments]


@pytest.fixture
def four_cards(tmp_path, monkeypatch):
    """A machine whose nvidia-smi tells of four cards, one of them in two parts."""
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/bin/sh\ncase $1 in --id=*) echo 00000000:3B:00.0; exit;; esac\nfor i in 0 1 2 3; do echo \"GPU $i: A100 (UUID: GPU-$i)\"; done\n"
                    "echo '  MIG 1g.5gb Device 0: (UUID: MIG-7)'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize("visible, processes, shares", [
    ("0,1,2,3", 4, ["0", "1", "2", "3"]), ("0,1,2,3", 2, ["0,1", "2,3"]),
    ("GPU-a, GPU-b", 2, ["GPU-a", "GPU-b"]), ("3,1", 1, ["3,1"]), ("", 2, ["", ""]),
    ("-1", 2, ["-1", "-1"])])
def test_the_visible_cards_are_shared_out(visible, processes, shares):
    assert taken(visible, processes) == shares


def test_without_the_variable_all_cards_of_the_machine_are_shared_out(four_cards):
    assert taken(None, 2) == ["0,1", "2,3"]
    assert taken(None, 1) == [None]


def test_a_machine_without_cards_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert taken(None, 2) == [None, None]


def test_cards_that_cannot_be_shared_out_evenly_are_refused(four_cards):
    with pytest.raises(UserError, match=r"4 cards \(0,1,2,3\) cannot be shared out evenly among 3"):
        taken(None, 3)


@pytest.mark.parametrize("beside, cores", [("1", {1}), ("0-1,4", {0, 1}), ("4-7", {0, 1}), (None, {0, 1})])
def test_a_worker_runs_on_the_cores_beside_its_cards(four_cards, tmp_path, beside, cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    pinned = [{0, 1}]
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: pinned.append(cores))
    if beside is not None:
        (tmp_path / "0000:3b:00.0").mkdir()
        (tmp_path / "0000:3b:00.0" / "local_cpulist").write_text(f"{beside}\n")
    worker_main.pin("1", str(tmp_path))
    assert pinned[-1] == cores

"""Files that are moved or removed while a command uses them end it with one line."""

import os
import shutil

import pytest

from commands import arguments, ends_with_error, on_cola, run_here, start_command
from conftest import on_tensorflow_1, on_tensorflow_2
from engine.training import summaries
from processes import step_of, wait_until


@pytest.fixture
def flags(tiny_model, tmp_path):
    return on_cola(tiny_model, tmp_path, dev=9, do_eval=True, num_train_epochs=3, save_checkpoints_steps=1)


def rename(folder):
    os.rename(folder, f"{folder}2")


def remove(folder):
    while os.path.exists(folder):  # another process writes into it
        shutil.rmtree(folder, ignore_errors=True)


@on_tensorflow_1
@pytest.mark.parametrize("move, changes", (
    (rename, dict()), (rename, dict(seeds="1,2")),
    (remove, dict(save_checkpoints_steps=100, eval_every_steps=5))))
def test_an_output_folder_that_goes_away_ends_the_training_with_one_line(
        move, changes, flags, tmp_path):
    flags = {**flags, **changes, "num_train_epochs": 10000}
    out = tmp_path / "out"
    at = out / "tries" / "lr-5e-05_seed-1" if "seeds" in flags else out
    process = start_command(*arguments(flags))
    wait_until(process, lambda: step_of(at))
    move(str(out))
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2 and "Traceback" not in said, said
    assert said.splitlines()[-1].startswith(
        f"error: --output_dir={out} was removed or renamed while the command ran: ")
    assert not os.path.exists(out)


@on_tensorflow_2
def test_an_output_folder_that_goes_away_during_an_evaluation_is_not_made_again(flags, tmp_path, monkeypatch, capsys):
    out, write = tmp_path / "out", summaries.write_evaluation

    def move_and_write(*arguments):
        rename(str(out))
        write(*arguments)

    monkeypatch.setattr(summaries, "write_evaluation", move_and_write)
    with ends_with_error(capsys, f"--output_dir={out} was removed or renamed while the command ran"):
        run_here(dict(flags, eval_every_steps=3))
    assert not out.exists()


@on_tensorflow_2
def test_checkpoints_that_are_renamed_are_not_forgotten(flags, tmp_path, capsys):
    run_here(dict(flags, num_train_epochs=0.5))
    out = tmp_path / "out"
    assert step_of(out) == 3
    for path in out.glob("model.ckpt-*"):
        path.rename(out / path.name.replace("model", "my"))
    with ends_with_error(capsys, f"{out / 'checkpoint'} names checkpoints that are not there",
                         "remove it to start anew"):
        run_here(flags)
    for path in out.glob("my.ckpt-*"):
        path.rename(out / path.name.replace("my", "model"))
    run_here(flags)
    assert "Resuming from" in capsys.readouterr().err and step_of(out) == 18
    for path in out.glob("*ckpt*"):
        path.unlink()
    (out / "checkpoint").unlink()
    run_here(flags)
    assert "Initialized" in capsys.readouterr().err and step_of(out) == 18

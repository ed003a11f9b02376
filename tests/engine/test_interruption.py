"""A run that is told to end, or killed, goes on and ends as if nothing had happened."""

import os
import random
import signal
import sys
import time

import numpy as np
import pytest

from commands import arguments, on_cola, run_command, start_command
from conftest import checkpoint_values
from encoder import classifier
from engine import interruption
from engine.checkpoints import checkpoint_files
from engine.disk import files
from engine.errors import UserError
from engine.training import checkpoint_hook
from engine.workers import worker_dirs
import processes
from processes import step_of, wait_until
from trainings import run_loop, settings

import tensorflow.compat.v1 as tf

STEPS = 18


@pytest.fixture(scope="module")
def flags(tiny_model, tmp_path_factory):
    """The flags of 18 steps with dropout on two replicas; all are saved, some evaluated."""
    directory = tmp_path_factory.mktemp("interruption")
    model = tiny_model.with_config(
        directory / "config.json", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    return on_cola(
        model, directory, dev=9, train_batch_size=4, num_train_epochs=3, num_cpu_replicas=2, learning_rate=1e-3,
        save_checkpoints_steps=1, eval_every_steps=4, do_eval=True, early_stopping_patience=100,
        store_dir=directory / "store")


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory):
    """The checkpoint of the uninterrupted run, and its output directory."""
    output_dir = tmp_path_factory.mktemp("whole")
    process = run_command(*arguments({**flags, "output_dir": output_dir}))
    assert process.returncode == 0, process.stderr
    return checkpoint_values(str(output_dir)), output_dir


def test_a_run_that_is_told_to_end_and_then_killed_ends_bit_for_bit_like_the_uninterrupted_one(
        flags, whole, tmp_path):
    generator = random.Random(1)
    for number, status in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
        wanted = step_of(tmp_path) + generator.randint(1, 4)
        process = start_command(*arguments({**flags, "output_dir": tmp_path}), code=processes.strike(
            number, f"step_of({str(tmp_path)!r}) >= {wanted}", after=generator.uniform(0, 0.05)))
        process.communicate()
        assert process.returncode == status
    assert 0 < step_of(tmp_path) < STEPS
    process = run_command(*arguments({**flags, "output_dir": tmp_path}))
    assert process.returncode == 0, process.stderr
    assert "Resuming from" in process.stderr
    np.testing.assert_equal(checkpoint_values(str(tmp_path)), whole[0])
    assert (tmp_path / "evaluations.json").read_text() == (
        whole[1] / "evaluations.json").read_text()
    assert sorted(name for name in os.listdir(str(tmp_path)) if "events" not in name) == sorted(
        name for name in os.listdir(str(whole[1])) if "events" not in name)


def test_a_run_that_is_told_to_end_saves_and_says_how_to_go_on(flags, tmp_path):
    # Nothing is saved on the way.
    unsaved = {**flags, "output_dir": tmp_path, "save_checkpoints_steps": 1000,
               "num_train_epochs": 500}
    process = start_command(*arguments(unsaved))
    assert any(line.startswith("step 1/") for line in process.stderr)
    while process.poll() is None:  # again and again, also while it saves
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    step = step_of(tmp_path)
    assert 0 < step < 3000
    line = said.splitlines()[-1]
    assert line == (f"interrupted by SIGINT: {tmp_path} has a checkpoint at step {step} of "
                    "3000; the same command resumes from there")
    assert "Traceback" not in said
    assert not [name for name in os.listdir(str(tmp_path)) if "temp" in name or "tmp" in name]


def test_before_the_first_step_a_signal_ends_the_command_at_once_and_leaves_no_checkpoint(
        flags, tmp_path):
    process = start_command(*arguments({**flags, "output_dir": tmp_path / "out"}), code=processes.strike(
        signal.SIGTERM, f"os.path.exists({str(tmp_path / 'out' / 'run.json')!r})"))  # the graph is being built
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and "interrupted by SIGTERM" in said.splitlines()
    assert not (tmp_path / "out" / "run.json").exists() and not step_of(tmp_path / "out")


def test_a_second_training_in_the_folder_is_refused_until_the_first_dies(flags, tmp_path):
    flags = {**flags, "output_dir": tmp_path, "eval_every_steps": None,
             "early_stopping_patience": None}
    first = start_command(*arguments({**flags, "num_train_epochs": 5000, "keep_checkpoint_max": 30000}))
    wait_until(first, lambda: step_of(tmp_path))
    for changes in (dict(seed=7), dict(seeds="1,2")):
        second = run_command(*arguments({**flags, **changes}))
        line = second.stderr.splitlines()[-1]
        assert (second.returncode, "Traceback" in second.stderr) == (2, False), second.stderr
        assert line.startswith(f"error: --output_dir={tmp_path} is being written by process "
                               f"{first.pid} on ")
    other = run_command(*arguments({**flags, "do_train": None}))  # which trains nothing
    assert other.returncode == 0, other.stderr
    first.kill()
    first.communicate()
    step = step_of(tmp_path)
    more = run_command(*arguments({**flags, "num_train_epochs": (step + 2) / 6}))
    assert more.returncode == 0 and step_of(tmp_path) == step + 2, more.stderr
    assert not (tmp_path / worker_dirs.LOCK).exists()


class _SignalledInItsDestructor:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)  # the handler runs here, and nothing that it raises leaves a destructor


def test_a_session_that_tensorflow_would_begin_anew_ends_the_training_as_its_batches_would_be_others(
        source, tiny_model, tmp_path):
    class Fails(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if step_of(tmp_path / "out") == 3:
                raise tf.errors.AbortedError(None, None, "as of a network")

    with pytest.raises(UserError, match="has lost its session.*the same command goes on"):
        run_loop(classifier.forward_of(tiny_model.config(), 2), source, 1, settings(
            tmp_path / "out", 4, num_train_steps=12, save_checkpoints_steps=3), None, hooks=[Fails()])
    assert step_of(tmp_path / "out") == 3


def test_a_stale_file_of_a_network_disk_is_an_error_of_the_disk(tmp_path):
    """TensorFlow makes an AbortedError of it, after which it would begin a session anew."""
    with pytest.raises(OSError, match=f"Stale file handle.*{tmp_path}/model"):
        with files.beside(f"{tmp_path}/model") as own:
            raise tf.errors.AbortedError(None, None, f"{own}/model: Stale file handle")
    with pytest.raises(tf.errors.AbortedError):
        with files.beside(f"{tmp_path}/model"):
            raise tf.errors.AbortedError(None, None, "/other/file: Stale file handle")


@pytest.fixture
def handlers_restored():
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    for number, handler in handlers:
        signal.signal(number, handler)


_WAITING = """
import time
from absl import flags
from engine.cli import command
def main(values):
    print("ready", flush=True)
    for _ in range(600):  # a signal just before a sleep does not shorten it
        time.sleep(0.1)
command.run(main, flags.FlagValues(), usage="", argv=["it"])
"""


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM) * 3])
def test_both_signals_at_once_end_the_command_with_one_line(numbers):
    process = processes.start(["-c", _WAITING], env=dict(os.environ))
    assert process.stdout.readline() == "ready\n"
    for number in (signal.SIGSTOP, *numbers, signal.SIGCONT):  # all of them arrive together
        process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "interrupted by SIGINT\n")


def test_a_signal_that_comes_out_as_another_error_is_an_interruption_all_the_same(
        handlers_restored):
    with pytest.raises(interruption.Interrupted) as caught, interruption.InterruptNow():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            raise RuntimeError("as TensorFlow's scopes say")
    assert caught.value.signal_number == signal.SIGTERM
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_signal_whose_exception_is_lost_is_raised_again(monkeypatch, handlers_restored):
    # pytest's own keeps what is lost, for its summary.
    monkeypatch.setattr(sys, "unraisablehook", None, raising=False)

    def work():
        with pytest.raises(interruption.Interrupted) as caught, interruption.InterruptNow():
            del [_SignalledInItsDestructor()][:]
            try:
                time.sleep(10)
            except BaseException:  # as libraries do
                pass
            time.sleep(10)
        return caught.value

    start = time.time()
    assert work().signal_number == signal.SIGTERM
    assert time.time() - start < 10


def test_a_removal_of_a_checkpoint_that_was_interrupted_is_finished(tmp_path):
    others = ["model.ckpt-4.data-00000-of-00001", "model.ckpt-4.index", "notes.tmp-20240101",
              "other.data-00000-of-00001"]
    for name in others + ["model.ckpt-3.index"]:  # its values are gone
        (tmp_path / name).write_text("")
    assert checkpoint_files.list_checkpoints(str(tmp_path)) == ["model.ckpt-3", "model.ckpt-4"]
    checkpoint_files.remove(str(tmp_path), ["model.ckpt-3"])
    assert sorted(os.listdir(str(tmp_path))) == ["checkpoint", *others]


def test_values_of_a_checkpoint_whose_process_was_killed_before_its_index_are_removed(tmp_path):
    for name in ("model.ckpt-5.data-00000-of-00001", "other.data-00000-of-00001"):
        (tmp_path / name).write_text("")
    assert checkpoint_hook.recover(str(tmp_path)) is None
    assert os.listdir(str(tmp_path)) == ["other.data-00000-of-00001"]

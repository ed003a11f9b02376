"""The command as people call it: flags in, checkpoints, scores and predictions out."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from absl import flags as absl_flags

import run_classifier
from commands import arguments, ends_with_error, on_cola, results_in, run_command, run_here
from conftest import (TinyModel, assert_same_training, checkpoint_values, sentences,
                      write_cola)
from engine import inference
from engine.checkpoints import checkpoints
from engine.cli import command
from engine.devices import gpus
from engine.errors import UserError
from engine.training import loop

TRAIN, DEV, TEST = 48, 21, 13


@pytest.fixture(scope="module")
def base_flags(tiny_model: TinyModel, tmp_path_factory):
    """The flags of a command that trains 6 steps of 8 examples, but --do_train and --output_dir."""
    folder = tmp_path_factory.mktemp("run_classifier")
    return on_cola(
        tiny_model, folder, train=TRAIN, dev=DEV, test=TEST, do_train=None, output_dir=None, store_dir=folder / "store",
        train_batch_size=4, num_cpu_replicas=2, warmup_proportion=0.34, learning_rate=1e-3)


@pytest.fixture(scope="module")
def finished(base_flags, tmp_path_factory):
    """A run on two replicas, and what it said."""
    output_dir = tmp_path_factory.mktemp("two_replicas")
    process = run_command("--do_train", "--do_eval", "--do_predict", *arguments({
        **base_flags, "output_dir": output_dir, "save_checkpoints_steps": 2,
        "keep_checkpoint_max": 2, "tpu_name": "mine", "num_tpu_cores": 8}))
    assert process.returncode == 0, process.stderr
    return output_dir, process.stderr


@pytest.fixture
def again(base_flags, finished, tmp_path):
    """Flags of a command on a copy of the finished run."""
    shutil.copytree(str(finished[0]), str(tmp_path / "out"))
    return dict(base_flags, output_dir=tmp_path / "out", do_train=True)


@pytest.fixture(scope="module")
def continued(base_flags, finished, tmp_path_factory):
    """A copy of the finished run that went on for a second epoch, and what it said."""
    output_dir = tmp_path_factory.mktemp("continued") / "out"
    shutil.copytree(str(finished[0]), str(output_dir))
    (output_dir / "predict_these.txt").write_text("mine")
    process = run_command("--do_train", "--num_train_epochs=2", *arguments(
        {**base_flags, "num_train_epochs": None, "keep_checkpoint_max": 1,
         "output_dir": output_dir}))
    assert process.returncode == 0, process.stderr
    return output_dir, process.stderr


def probabilities(output_dir, suffix: str = "") -> np.ndarray:
    return np.array([[float(value) for value in line.split("\t")] for line in
                     (output_dir / f"test_results{suffix}.tsv").read_text().splitlines()])


def steps_of(output_dir) -> int:
    return checkpoints.latest(str(output_dir)).global_step


# --- One run, from flags to files ----------------------------------------------------------


def test_a_run_says_what_it_trains_starts_from_and_does(finished):
    for line in (r"Training on CPU:0 CPU:1: 2 replicas x 4 = 8 examples per step; 48 examples x 1 epoch = "
                 "6 steps, 2 of them warm-up",
                 r"Initialized 23 variables from .*bert_model\.ckpt",
                 r".*not in the checkpoint.*output_weights, output_bias",
                 r"step 6/6: loss \d\.\d+, lr \d\.\d\de-\d\d, [\d,.]+ examples/s.*",
                 r"Evaluating with .*\(step 6\)", rf"Evaluating: {DEV} examples.*",
                 rf"Predicting: {TEST} examples.*"):
        assert re.search(f"^{line}$", finished[1], re.M), (line, finished[1])
    assert "Traceback" not in finished[1] and "no GPU is visible" not in finished[1]
    warnings = [line for line in finished[1].splitlines() if line.startswith("WARNING: --")]
    assert [warning.split()[1] for warning in warnings] == ["--tpu_name", "--num_tpu_cores"]


def test_results_have_the_keys_of_the_original_first_and_predictions_a_row_per_example(finished):
    results, rows = results_in(finished[0]), probabilities(finished[0])
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss",
                             "matthews_correlation"]
    assert results["global_step"] == 6 and results["loss"] == results["eval_loss"]
    assert (results["eval_accuracy"] * DEV) % 1 == pytest.approx(0, abs=1e-9)
    assert rows.shape == (TEST, 2)
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)
    assert (finished[0] / "predict.txt").read_text().splitlines() == [
        str(index) for index in rows.argmax(axis=1)]


@pytest.mark.skipif(gpus.on_machine(), reason="this machine has a card")
@pytest.mark.parametrize("cards, work, is_warned", [
    ("0", "do_train", True), ("0", "do_eval", False), ("", "do_train", False)])
def test_a_training_on_the_cpu_says_so_loudly_unless_the_cards_are_hidden(
        cards, work, is_warned, base_flags, finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards)
    folder = finished[0] if work == "do_eval" else tmp_path
    run_here({**base_flags, "num_cpu_replicas": None, "train_batch_size": 8, work: True,
              "output_dir": folder})
    said = capsys.readouterr().err
    assert bool(re.search(r"^WARNING: no GPU is visible to TensorFlow .*\(CUDA_VISIBLE_DEVICES='0'\): "
                          "running on the CPU", said, re.M)) == is_warned
    assert is_warned or "no GPU" not in said
    if work == "do_train":
        assert "Training on CPU:0: 1 replica x 8 = 8 examples per step" in said
        assert_same_training(checkpoint_values(str(finished[0])), checkpoint_values(str(tmp_path)))


# --- The same output directory again -------------------------------------------------------


def test_the_same_command_again_trains_nothing_prepares_nothing_and_says_so(again, capsys):
    before = checkpoint_values(str(again["output_dir"]))
    record, names = ((again["output_dir"] / name).read_text() for name in ("run.json", "checkpoint"))
    (again["output_dir"] / "checkpoint").unlink()  # as if the disk had failed after the last step
    run_here({**again, "num_train_epochs": 1})
    said = capsys.readouterr().err
    assert "already trained to step 6 of 6: nothing is left to train" in said
    assert (again["output_dir"] / "checkpoint").read_text() == names
    assert "Preparing" not in said and "WARNING" not in said
    after = checkpoint_values(str(again["output_dir"]))
    assert all(np.array_equal(value, after[name]) for name, value in before.items())
    assert (again["output_dir"] / "run.json").read_text() == record


def test_a_finished_run_says_which_flags_have_no_effect(again, capsys):
    run_here({**again, "learning_rate": 0.5, "train_batch_size": 2, "gradient_accumulation_steps": 2})
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("WARNING")] == [
        "WARNING: --learning_rate has no effect, since nothing is left to train: was 0.001, now 0.5"]


def test_a_run_that_ends_before_its_first_checkpoint_leaves_the_folder_as_it_was(again, capsys, monkeypatch):
    def content():
        return {path.name: path.read_bytes() for path in again["output_dir"].iterdir() if path.is_file()}

    def refused(kept, step):
        raise UserError(f"step {step.number} is refused")

    before = content()
    (again["output_dir"] / "evaluations.json").write_text(json.dumps({"best_checkpoint": "model.ckpt-4", "evaluations": []}))
    before["evaluations.json"] = content()["evaluations.json"]
    monkeypatch.setattr(loop, "_check_loss", refused)
    for precision, said in (("float16", "has no loss scale"), ("float32", "step 7 is refused")):
        with ends_with_error(capsys, said):
            run_here({**again, "num_train_epochs": 2, "learning_rate": 0.5, "precision": precision,
                      "keep_checkpoint_max": 1})
        assert content().items() >= before.items()
    assert {"run.json", "eval_results.txt", "test_results.tsv"} <= before.keys()


def test_more_epochs_go_on_from_where_the_run_ended_and_leave_no_stale_files(continued):
    output_dir, said = continued
    assert "resumed with another --num_train_epochs: was 1.0, now 2.0" in said
    assert re.search(r"^Resuming from .*model\.ckpt-6 \(step 6\)$", said, re.M)
    assert "step 7/12" in said and "step 1/12" not in said and "Preparing" not in said
    assert steps_of(output_dir) == 12
    names = os.listdir(str(output_dir))
    assert [name for name in names if name.endswith(".index")] == ["model.ckpt-12.index"]
    assert not {"eval_results.txt", "test_results.tsv", "predict.txt"} & set(names)
    assert "predict_these.txt" in names  # the user's own


def test_another_number_of_replicas_with_the_same_global_batch_goes_on_to_the_same_end(
        again, continued, capsys):
    run_here({**again, "num_train_epochs": 2, "num_cpu_replicas": 1, "train_batch_size": 8})
    assert "resumed with another number of replicas: was 2, now 1" in capsys.readouterr().err
    assert_same_training(checkpoint_values(str(continued[0])),
                         checkpoint_values(str(again["output_dir"])))


@pytest.mark.parametrize("difference, num_examples, changes", [
    ("another casing (--do_lower_case): was True, now False", TRAIN, dict(do_lower_case=False)),
    ("another --max_seq_length: was 24, now 16", TRAIN, dict(max_seq_length=16)),
    ("another training data", TRAIN - 1, {})])
def test_a_directory_that_holds_another_run_is_refused_with_the_difference(
        difference, num_examples, changes, again, tmp_path, capsys):
    again["data_dir"] = write_cola(tmp_path / "cola", train=num_examples)
    with ends_with_error(capsys, "error: --output_dir=", difference):
        run_here({**again, "num_train_epochs": 9, **changes})
    assert steps_of(again["output_dir"]) == 6


def test_a_model_without_a_checkpoint_is_trained_from_random_values_and_says_so(
        base_flags, tmp_path, capsys):
    run_here({**base_flags, "init_checkpoint": None, "output_dir": tmp_path, "do_train": True,
              "n_gpus": 0, "num_cpu_replicas": None})
    said = capsys.readouterr().err
    assert "WARNING: no --init_checkpoint" in said
    assert "no GPU is visible" not in said, "the CPU was asked for"
    assert steps_of(tmp_path) == TRAIN // 4


# --- Flags -----------------------------------------------------------------------------------

PRINT_GOOGLES_FLAGS = """
import json
from absl import flags
import bert.run_classifier
print(json.dumps([[flag.name, flag.default, flag.flag_type()] for flag
                  in flags.FLAGS.flags_by_module_dict()["bert.run_classifier"]]))
"""


def test_all_flags_of_the_original_are_there_with_its_defaults():
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    # In a process of its own: its scripts define flags of the same names.
    theirs = json.loads(subprocess.check_output(
        [sys.executable, "-c", PRINT_GOOGLES_FLAGS], stderr=subprocess.DEVNULL))
    ours = run_classifier.define_flags()
    assert len(theirs) > 20
    for name, default, flag_type in theirs:
        own = ours[name].default
        if name in ("eval_batch_size", "predict_batch_size"):  # on cards, as many as have 16,000 tokens
            assert own is None
            own = inference.CPU_BATCH_SIZE
        assert own == default, name
        assert ours[name].flag_type() == flag_type, name


def test_importing_the_command_defines_no_flag_and_an_argument_that_is_none_is_an_error(capsys):
    assert "num_gpus" not in absl_flags.FLAGS and "replicas_per_gpu" not in absl_flags.FLAGS
    with ends_with_error(capsys, "error: Unexpected argument 'train'"):
        command.run(run_classifier.main, run_classifier.define_flags(), usage="",
                    argv=["run_classifier.py", "train"])


# --- Other kinds of tasks ------------------------------------------------------------------


def test_mnli_is_scored_on_the_matched_and_the_mismatched_set(base_flags, tmp_path):
    labels = ("contradiction", "entailment", "neutral")

    def write(name, count, seed, last_columns):
        rows = ["\t".join([*"01234567", text_a, text_b, *last_columns(i)])
                for i, (text_a, text_b) in enumerate(
                    zip(sentences(count, seed), sentences(count, seed + 1)))]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["header", *rows, ""]))

    for seed, (name, count) in enumerate([
            ("train", 16), ("dev_matched", 5), ("dev_mismatched", 7)]):
        write(name, count, seed, lambda i: (labels[i % 2], labels[i % 3]))
    write("test_matched", 3, 7, lambda i: ())
    write("test_mismatched", 4, 8, lambda i: ())
    output_dir = tmp_path / "out"
    run_here({**base_flags, "task_name": "MNLI", "data_dir": tmp_path, "output_dir": output_dir,
              "do_train": True, "do_eval": True, "do_predict": True})
    results = results_in(output_dir)
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss",
                             "eval_accuracy_mm", "eval_loss_mm"]
    assert (results["eval_accuracy"] * 5) % 1 == pytest.approx(0, abs=1e-9)
    assert (results["eval_accuracy_mm"] * 7) % 1 == pytest.approx(0, abs=1e-9)
    for suffix, count in (("", 3), ("_mm", 4)):
        rows = probabilities(output_dir, suffix)
        assert rows.shape == (count, 3)
        assert (output_dir / f"predict{suffix}.txt").read_text().splitlines() == [
            labels[index] for index in rows.argmax(axis=1)]

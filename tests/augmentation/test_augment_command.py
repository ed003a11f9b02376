"""The augmentation as people run it: killed and resumed, in bounded memory, with bad input."""

import os
import random
import signal
import subprocess

import pytest

import processes
from augmentations import SETTINGS, augment_here, write_cola
from commands import arguments, ends_with_error
from conftest import on_tensorflow_1, sentences
from masked_lm import write_tiny_masked_lm

NUM_ROWS = 400


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    return write_tiny_masked_lm(tiny_model, tmp_path_factory.mktemp("lm") / "model")


@pytest.fixture(scope="module")
def flags(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_cola(directory / "cola", sentences(NUM_ROWS))
    (directory / "glove.txt").write_text("cats 1 0\ndogs 0 1\ntrees 1 1\n")
    return {**model._asdict(), **SETTINGS, "N": 3, "task_name": "cola",
            "data_dir": directory / "cola", "glove_embs": directory / "glove.txt",
            "num_cpu_replicas": 2, "predict_batch_size": 8}


# Small chunks: as the command is, a test would need a large set to be killed amid it.
PROGRAM = """
import sys
from augmentation import run
from engine.cli import command
run._WORDS_AT_A_TIME = {"CPU": %d}
command.run(run.main, run.define_flags(), usage="", argv=sys.argv)
"""


def start(flags, output_dir, chunk_words=30) -> subprocess.Popen:
    return processes.start(
        ["-c", PROGRAM % chunk_words, *arguments({**flags, "output_dir": output_dir})],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def num_lines(path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@on_tensorflow_1
def test_killed_and_told_to_end_it_ends_with_the_bytes_of_the_uninterrupted_run(
        model, flags, tmp_path):
    augment_here(model, tmp_path / "whole", **flags)
    out = tmp_path / "out"
    generator = random.Random(1)
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = start(flags, out)
        wanted = num_lines(out / "train.tsv.part") + generator.randint(1, 300)
        processes.wait_until(process, lambda: num_lines(out / "train.tsv.part") >= wanted)
        process.send_signal(number)
        said = process.communicate()[1]
        assert process.returncode == (-9 if number == signal.SIGKILL else 143), said
        assert not (out / "train.tsv").exists()
    assert f"of {NUM_ROWS} examples are done; the same command goes on" in said
    assert "Traceback" not in said
    done = int(said.splitlines()[-1].split(": ")[1].split(" ")[0])
    process = start(flags, out, chunk_words=200)  # as a version with other chunks goes on
    said = process.communicate()[1]
    assert process.returncode == 0, said
    assert f"Augmenting train.tsv: {NUM_ROWS - done} examples in " in said  # and none again
    assert (out / "train.tsv").read_bytes() == (
        tmp_path / "whole" / "train.tsv").read_bytes()
    again = start(flags, out).communicate()[1]
    assert "is whole: nothing is left to augment" in again
    assert sorted(os.listdir(str(out))) == ["train.tsv", "train.tsv.json"]


@pytest.mark.parametrize("changes, words", [
    ({"data_dir": "missing"}, ("missing/train.tsv", "No such file")),
    ({"glove_embs": "broken.txt"}, ("broken.txt, line 2", "must be a word and 2 numbers")),
    ({"glove_embs": "missing.txt"}, ("--glove_embs missing.txt", "No such file")),
    ({"init_checkpoint": "encoder"}, ("no masked-LM head (cls/predictions/...)",)),
    ({"vocab_file": "unmasked.txt"}, ("unmasked.txt lacks [MASK]",)),
    ({"M": 20}, ("--M=20", "only 21 words")),
    ({"N": 0}, ("--N=0",)),
    ({"p": 1.5}, ("--p=1.5", "between 0 and 1")),
    ({"max_seq_length": 41}, ("--max_seq_length=41", "only 40 positions")),
    ({"output_dir": "good"}, ("--output_dir=good", "use another directory")),
    ({"output_dir": "other"}, ("other/train.tsv", "not written by this command")),
])
def test_wrong_input_is_one_line(
        changes, words, model, tiny_model, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_cola(tmp_path / "good", ["old cat", "small dog"])
    write_cola(tmp_path / "other", ["mine"])
    (tmp_path / "broken.txt").write_text("cats 1 0\ndogs 0 o.5\n")
    with open(model.vocab_file) as file:
        (tmp_path / "unmasked.txt").write_text(file.read().replace("[MASK]", "[mask]"))
    if "init_checkpoint" in changes:
        changes = {"init_checkpoint": tiny_model.init_checkpoint}
    with ends_with_error(capsys, *words):
        augment_here(model, tmp_path / "out", **{**flags, "data_dir": "good", **changes})
    assert not (tmp_path / "out" / "train.tsv").exists()


def test_a_set_without_variants_is_said(model, flags, tmp_path, capsys):
    write_cola(tmp_path / "cola", ["of the"])
    augment_here(model, tmp_path / "out", **{**flags, "data_dir": tmp_path / "cola"})
    assert "none of these examples has a variant" in capsys.readouterr().err

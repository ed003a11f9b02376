"""Whatever is wrong with a distillation's input: one clear line before anything is written."""

import os
import shutil

import pytest

from commands import ends_with_error, run_here
from conftest import write_cola
from distillation import run


@pytest.fixture
def flags(tiny_classifier, tmp_path):
    """The flags of a first stage that would work."""
    return dict(stage="intermediate", task_name="cola", teacher=tiny_classifier,
                data_dir=write_cola(tmp_path / "cola", train=48, dev=9), student="1,16,2,32",
                do_train=True, num_cpu_replicas=2, train_batch_size=4, max_seq_length=24,
                num_train_epochs=1, output_dir=tmp_path / "out")


def other_vocabulary(folder, flags):
    shutil.copytree(str(flags["teacher"]), str(folder / "student"))
    with open(str(folder / "student" / "vocab.txt"), "r+") as file:
        tokens = file.read().replace("tree", "trees")
        file.seek(0)
        file.write(tokens)
    flags["student"] = folder / "student"


def other_labels(folder, flags):
    (folder / "train.tsv").write_text("id\ta\tb\tlabel\n1\tx\ty\tneutral\n")
    flags.update(task_name="mnli", data_dir=folder)


@pytest.mark.parametrize("changes, parts", [
    (other_vocabulary, ("vocab.txt", "another vocabulary than the teacher's")),
    (other_labels, ("the labels 0, 1,", "contradiction, entailment, neutral", "the same task")),
    (dict(student="1,16,4,32"), ("4 attention heads", "--teacher 2", "--attention_loss=false")),
    (dict(student="1,16,3,32"), ("--student=1,16,3,32: ", "multiple")),
    (dict(student="2,99999999,1,1"), ("--student=2,99999999,1,1: ", "GB, and this machine has")),
    (dict(student="3,16,2,32"), ("--student has 3 layers", "--teacher only 2")),
    (dict(teacher="/no/where"), ("--teacher=/no/where", "no checkpoint")),
    (dict(input_file="x.tfrecord"), ("--input_file", "--stage=general")),
    (dict(stage="general", task_name=None, data_dir=None), ("--input_file is required",)),
    (dict(do_eval=True), ("--do_eval", "--stage=prediction")),
    (dict(do_train=False, do_eval=True, stage="prediction"), ("has no trained model", "give one as --student")),
    (dict(do_export=True), ("--do_export", "--stage=prediction")),
    (dict(max_seq_length=41), ("--max_seq_length=41", "between 3 and 40")),
    (dict(label_weight=0.5), ("--label_weight", "--stage=intermediate")),
    (dict(stage="prediction", attention_loss=False), ("--attention_loss", "--stage=prediction")),
    (dict(dev_file="dev.tsv"), ("--dev_file", "--task_name=file")),
])
def test_bad_input_is_answered_in_one_line_before_anything_is_written(
        flags, tmp_path, capsys, changes, parts):
    if callable(changes):
        changes(tmp_path, flags)
    else:
        flags.update(changes)
    with ends_with_error(capsys, *parts):
        run_here(flags, run)
    out = tmp_path / "out"
    assert not out.exists() or not [name for name in os.listdir(str(out)) if "ckpt" in name]

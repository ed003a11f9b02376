"""Whatever is wrong with the input: one clear line, exit status 2, and nothing half-written."""

import json
import pathlib
import shutil
from typing import Callable

import pytest

from bad_files import (
    Case, assert_nothing_half_written, assert_refused, content, flags_set, in_turn, missing)
from commands import ends_with_error, run_here
from conftest import TinyModel, write_cola

import tensorflow.compat.v1 as tf


@pytest.fixture
def command_line(tiny_model: TinyModel, tmp_path):
    """The folder of a command that would work, and its flags."""
    for path in pathlib.Path(tiny_model.vocab_file).parent.iterdir():
        shutil.copy(str(path), str(tmp_path))
    write_cola(tmp_path, train=40, dev=9, test=5)
    flags = dict(
        task_name="cola", data_dir=tmp_path, output_dir=tmp_path / "out",
        vocab_file=tmp_path / "vocab.txt", bert_config_file=tmp_path / "bert_config.json",
        init_checkpoint=tmp_path / "bert_model.ckpt", max_seq_length=16, train_batch_size=8,
        num_train_epochs=1, num_cpu_replicas=2, do_train=True, do_eval=True, do_predict=True)
    return tmp_path, flags


def cut(name: str, share: float) -> Callable:
    """Leaves the first part of a file, as a copy that broke off."""
    def damage(folder, flags):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:int(len(content) * share)])
    return damage


def config(**changes) -> Callable:
    """Changes values of bert_config.json, or removes those that are None."""
    def damage(folder, flags):
        path = folder / "bert_config.json"
        values = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return damage


def variables(**shapes) -> Callable:
    """Replaces the checkpoint by one with these variables."""
    def damage(folder, flags):
        with tf.Graph().as_default(), tf.Session() as session:
            for name, shape in shapes.items():
                tf.get_variable(name.replace("__", "/"), shape)
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, str(folder / "bert_model.ckpt"), write_state=False,
                                  write_meta_graph=False)
    return damage


GOOD_ROWS = "".join(f"x\t{i % 2}\t\ta cat\n" for i in range(20))
STS_B_HEADER = "\t".join(f"column{i}" for i in range(10)) + "\n"
STS_B_ROW = "\t" * 7 + "a cat\ta dog\t{}\n"
DATA, INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"

CASES = {
    # The vocabulary.
    "no vocabulary": Case(
        missing("vocab.txt"), ("--vocab_file", "vocab.txt", "No such file")),
    "an empty vocabulary": Case(content("vocab.txt", ""), ("--vocab_file", "empty")),
    "a vocabulary cut short before [SEP]": Case(
        content("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n"), ("--vocab_file", "[SEP]")),
    "a vocabulary cut short": Case(
        config(vocab_size=30522), ("--vocab_file", "vocab.txt", "33", "30,522", "cut short")),
    "a vocabulary that is not UTF-8": Case(
        content("vocab.txt", b"[PAD]\n\xff\xfe\n"), ("--vocab_file", "UTF-8")),
    "a vocabulary larger than the config's": Case(
        config(vocab_size=20), ("--vocab_file", "--bert_config_file", "33", "20")),
    # The checkpoint.
    "no checkpoint": Case(
        flags_set(init_checkpoint="{}/other.ckpt"), ("--init_checkpoint", "other.ckpt")),
    "a directory without checkpoints": Case(
        in_turn(lambda folder, flags: (folder / "empty").mkdir(),
                flags_set(init_checkpoint="{}/empty")), ("--init_checkpoint", "empty")),
    "a checkpoint without its values": Case(
        missing(DATA), ("--init_checkpoint", "bert_model.ckpt")),
    "a checkpoint cut short": Case(
        cut(DATA, 0.5), ("--init_checkpoint", "bert_model.ckpt", "cut short")),
    "an empty index of a checkpoint": Case(
        content(INDEX, b""), ("--init_checkpoint", "bert_model.ckpt")),
    "a checkpoint of another model": Case(
        variables(conv__kernel=[3, 3]), ("--init_checkpoint", "conv/kernel")),
    "a checkpoint of another size": Case(
        config(hidden_size=32), ("bert_model.ckpt", "[33, 16]", "[33, 32]")),
    "a checkpoint with another number of labels": Case(
        variables(bert__embeddings__word_embeddings=[33, 16], output_weights=[3, 16],
                  output_bias=[3]),
        ("--init_checkpoint", "bert_model.ckpt", "3 outputs", "labels need 2")),
    "evaluation of a model that is not fine-tuned": Case(
        flags_set(do_train=False), ("--init_checkpoint", "output_weights", "--do_train")),
    "evaluation of nothing": Case(
        flags_set(do_train=False, init_checkpoint=None), ("--output_dir", "--init_checkpoint")),
    # The task's files.
    "no training set": Case(missing("train.tsv"), ("train.tsv", "No such file")),
    "no test set, found before the training": Case(missing("test.tsv"), ("test.tsv",)),
    "a row with too few columns": Case(
        content("train.tsv", GOOD_ROWS + "x\t1\n"), ("train.tsv", "line 21", "2 columns", "4")),
    "an empty line": Case(
        content("dev.tsv", GOOD_ROWS + "\n" + GOOD_ROWS), ("dev.tsv", "line 21", "columns")),
    "an unknown label": Case(
        content("dev.tsv", GOOD_ROWS + "x\tyes\t\ta cat\n"),
        ("dev.tsv", "line 21", "'yes'", "0, 1")),
    "a score that is not finite": Case(
        in_turn(flags_set(task_name="sts-b"),
                content("train.tsv", STS_B_HEADER + STS_B_ROW.format(1) + STS_B_ROW.format("nan"))),
        ("train.tsv", "line 3", "'nan'", "number")),
    "too few examples for one batch": Case(
        flags_set(train_batch_size=32), ("40 examples", "64", "--train_batch_size")),
    # The model's config.
    "no config": Case(missing("bert_config.json"), ("--bert_config_file", "No such file")),
    "a config that is not JSON": Case(
        cut("bert_config.json", 0.5), ("--bert_config_file", "JSON")),
    "a config that is a list": Case(
        content("bert_config.json", "[1]"), ("--bert_config_file", "no JSON object")),
    "a config without vocab_size": Case(
        config(vocab_size=None), ("--bert_config_file", "vocab_size")),
    "a hidden size that the heads do not divide": Case(
        config(num_attention_heads=3), ("--bert_config_file", "16", "3")),
    "a probability that is a text": Case(
        config(hidden_dropout_prob="0.1"), ("--bert_config_file", "hidden_dropout_prob")),
    "a vocabulary larger than any memory": Case(
        config(vocab_size=10**12), ("--bert_config_file", "GB", "a number wrong")),
    "an unknown activation": Case(
        config(hidden_act="swoosh"), ("--bert_config_file", "swoosh")),
    # Flags.
    "a length beyond the model's positions": Case(
        flags_set(max_seq_length=41), ("--max_seq_length=41", "40")),
    "a length with no room for a token": Case(
        flags_set(max_seq_length=2), ("--max_seq_length=2", "3")),
    "a batch of 0": Case(flags_set(train_batch_size=0), ("--train_batch_size=0",)),
    "endless epochs": Case(flags_set(num_train_epochs=1e308), ("lower --num_train_epochs",)),
    "more accumulation than examples":
        Case(flags_set(gradient_accumulation_steps=100), ("--gradient_accumulation_steps",)),
    "a learning rate that is no number": Case(
        flags_set(learning_rate="nan"), ("--learning_rate=nan",)),
    "a number that is none": Case(
        flags_set(train_batch_size="many"), ("--train_batch_size=many",)),
    "an unknown task": Case(
        flags_set(task_name="boolq"), ("boolq", "cola", "mnli", "sts-b", "xnli")),
    "nothing to do": Case(
        flags_set(do_train=False, do_eval=False, do_predict=False),
        ("--do_train", "--do_eval", "--do_predict", "--help")),
    "no task": Case(flags_set(task_name=None), ("--task_name",)),
    "no data directory": Case(flags_set(data_dir=None), ("--data_dir",)),
    "no vocabulary file": Case(
        in_turn(missing("vocab.txt"), flags_set(vocab_file=None)), ("--vocab_file",)),
    "no config file": Case(
        in_turn(missing("bert_config.json"), flags_set(bert_config_file=None)),
        ("--bert_config_file",)),
    "no output directory": Case(flags_set(output_dir=None), ("--output_dir",)),
    "a misspelt flag": Case(flags_set(num_gpu=2), ("num_gpu", "num_gpus")),
    "a TPU": Case(flags_set(use_tpu=True), ("--use_tpu",)),
    "NCCL on the CPU": Case(flags_set(all_reduce="nccl"), ("--all_reduce=nccl",)),
    "an unknown way to reduce": Case(
        flags_set(all_reduce="star"), ("--all_reduce", "star", "one_device")),
    "GPUs and CPU replicas": Case(
        flags_set(num_gpus=1), ("--num_gpus=1", "--num_cpu_replicas=2")),
    "two names of a flag that disagree": Case(
        flags_set(num_gpus=0, n_gpus=1), ("--num_gpus=0", "--n_gpus=1")),
    # The directories that are written to.
    "a file in the place of the output directory": Case(
        content("out", "important"), ("--output_dir", "out")),
    "an output directory below a file": Case(
        flags_set(output_dir="{}/vocab.txt/out"), ("--output_dir", "vocab.txt/out")),
    "a file in the place of the store": Case(
        in_turn(content("store", ""), flags_set(store_dir="{}/store")), ("--store_dir", "store")),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_and_status_2(name, command_line, capsys):
    assert_refused(CASES[name], *command_line, capsys)


def test_the_command_that_the_cases_damage_is_a_good_one(command_line, capsys):
    folder, flags = command_line
    run_here(flags)
    assert (folder / "out" / "run.json").exists()
    assert len((folder / "out" / "predict.txt").read_text().splitlines()) == 5
    assert "error" not in capsys.readouterr().err
    with pytest.raises(AssertionError):
        assert_nothing_half_written(folder / "out")


def test_a_file_in_the_place_of_the_output_directory_is_left_as_it_is(command_line, capsys):
    folder, flags = command_line
    (folder / "out").write_text("important")
    with ends_with_error(capsys):
        run_here(flags)
    assert (folder / "out").read_text() == "important"


def test_a_vocabulary_that_is_padded_in_the_config_is_taken_with_a_warning(command_line, capsys):
    folder, flags = command_line
    config(vocab_size=40)(folder, flags)
    flags.update(do_train=False, task_name="cola")
    with pytest.raises(SystemExit):
        run_here(flags)
    warning, *_, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("WARNING: --vocab_file=") and "output_weights" in error

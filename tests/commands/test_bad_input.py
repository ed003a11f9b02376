"""Whatever is wrong with the input: one clear line, exit status 2, and nothing half-written.

Every case is done to the files and flags of a command that would work.
"""

import pathlib
import shutil

import pytest

from bad_input import (
    CSV_GOOD, CSV_HEADER, DATA, GOOD, HEADER, JSON_GOOD, PROCESSOR, Case,
    assert_nothing_half_written, assert_refused, config, content, csv, cut, directory, flags_set,
    in_turn, jsonl, missing, processor, row, variables, with_outputs)
from commands import ends_with_error, results_of, run_here
from conftest import TinyModel


@pytest.fixture
def command_line(tiny_model: TinyModel, tmp_path):
    """The folder of a command that would work, and its flags."""
    for path in pathlib.Path(tiny_model.vocab_file).parent.iterdir():
        shutil.copy(str(path), str(tmp_path))
    for name, text in (("train", HEADER + GOOD), ("dev", HEADER + GOOD), ("test", "text\ncat\n")):
        (tmp_path / f"{name}.tsv").write_text(text)
    return tmp_path, dict(
        task_name="file", data_dir=tmp_path, output_dir=tmp_path / "out",
        vocab_file=tmp_path / "vocab.txt", bert_config_file=tmp_path / "bert_config.json",
        init_checkpoint=tmp_path / "bert_model.ckpt", max_seq_length=16, train_batch_size=4,
        num_train_epochs=1, num_cpu_replicas=2, do_train=True, do_eval=True, do_predict=True)


CASES = {
    # --- The user's own files ---
    # Rows and columns.
    "a row with too few columns": Case(
        row("yes\n"), ("train.tsv, line 22", "1 columns", "first line has 2")),
    "one column": Case(content("train.tsv", "the cat\na dog\n"),
                       ("train.tsv", "one column", "tabs", "commas")),
    "a label column that is not there": Case(
        flags_set(label_column="stars"), ("train.tsv", "'stars'", "--label_column", "label, text")),
    "no column but two texts": Case(
        content("train.tsv", "sentence1\tsentence2\nthe cat\ta dog\n"),
        ("train.tsv", "found no column for the label", "sentence1, sentence2")),
    "a header and nothing else": Case(content("train.tsv", HEADER), ("train.tsv", "no examples")),
    # Labels.
    "labels that the training set lacks": Case(  # a few of them are mistakes
        content("dev.tsv", HEADER + "maybe\tthe cat\n" * 9), ("dev.tsv, line 2", "'maybe'", "one of no, yes")),
    "an empty label": Case(row("\tthe cat\n"), ("train.tsv, line 22: the label is ''",)),
    "one label for all": Case(content("train.tsv", HEADER + "yes\tcat\n" * 20),
                              ("train.tsv", "every label is 'yes'", "--label_column")),
    # Bytes.
    "a line in Latin-1": Case(row("yes\tcaf\xe9\n".encode("latin-1")),
                              ("train.tsv, line 22", "UTF-8", "iconv")),
    "UTF-16": Case(content("train.tsv", (HEADER + GOOD).encode("utf-16")),
                   ("train.tsv, line 1", "UTF-16", "iconv")),
    "lines of old Macs": Case(content("train.tsv", (HEADER + GOOD).replace("\n", "\r").encode()),
                              ("train.tsv: lines end with \\r alone", "tr '\\r' '\\n'")),
    # CSV.
    "a quote that is not closed": Case(
        csv('no,"a dog\n' + CSV_GOOD), ("train.csv, line 22", "quotes", "closed")),
    # JSON lines.
    "a line that is cut short": Case(jsonl('{"label": "yes", "te\n'),
                                     ("train.jsonl, line 3", "JSON", "one object")),
    "null for a text": Case(jsonl('{"label": "yes", "text": null}\n'),
                            ("train.jsonl, line 3", "'text' is null", "a text")),
    # Files and flags.
    "a directory for a file": Case(directory("dev.tsv"), ("dev.tsv", "directory")),
    "a file that is not there": Case(
        flags_set(dev_file="{}/other.tsv"), ("--dev_file", "other.tsv", "No such file")),
    "no set": Case(missing("train.tsv"), ("none of train.tsv, train.txt, train.csv, train.jsonl",
                                          "--train_file")),
    "two files for one set": Case(content("dev.csv", CSV_HEADER + CSV_GOOD),
                                  ("dev.tsv and dev.csv", "--dev_file")),
    "neither directory nor file": Case(flags_set(data_dir=None), ("--data_dir", "--train_file")),
    "a file of another kind": Case(
        in_turn(content("train.xlsx", b"PK\x03\x04\x14\0"), flags_set(train_file="{}/train.xlsx")),
        ("train.xlsx", ".tsv, .txt, .csv, .jsonl")),
    "labels that nobody knows": Case(flags_set(do_train=False), ("--output_dir", "--do_train")),
    "a column of another task": Case(
        flags_set(task_name="cola", label_column="2"), ("--label_column", "--task_name=file")),
    # Data processors.
    "a processor that is not there": Case(
        flags_set(task_name=None, processor="{}/mine.py:Mine"), ("--processor", "mine.py")),
    "a processor's class that is not there": Case(
        processor("class Other: pass"), ("mine.py", "no class 'Mine'")),
    "a processor with an unknown label": Case(
        processor(PROCESSOR.replace('None, "no"', 'None, "maybe"')),
        ("train example 't-2'", "'maybe'", "one of no, yes")),
    "a processor with an empty cell of pandas": Case(
        processor(PROCESSOR.replace('"a dog"', 'float("nan")')), ("train example 't-2' has no text", "(nan,)")),
    "a processor with a label twice": Case(
        processor(PROCESSOR.replace('["no", "yes"]', '["no", "yes", "no "]')),
        ("get_labels()", "the same label twice: no, yes, no")),
    # The vocabulary.
    "an empty vocabulary": Case(content("vocab.txt", ""), ("--vocab_file", "empty")),
    "a vocabulary cut short": Case(
        config(vocab_size=30522), ("--vocab_file", "vocab.txt", "33", "30,522", "cut short")),
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
    "a checkpoint of another model": Case(
        variables(conv__kernel=[3, 3]), ("--init_checkpoint", "conv/kernel")),
    "a checkpoint of another size": Case(
        config(hidden_size=32), ("bert_model.ckpt", "[33, 16]", "[33, 32]")),
    "a checkpoint with another number of labels": Case(
        with_outputs(3),
        ("--init_checkpoint", "bert_model.ckpt", "3 outputs", "labels need 2")),
    "evaluation of a model that is not fine-tuned": Case(
        flags_set(do_train=False, task_name="cola"),
        ("--init_checkpoint", "output_weights", "--do_train")),
    # The task's files.
    "a row of GLUE's with too few columns": Case(
        in_turn(flags_set(task_name="cola"), content("train.tsv", "x\t1\n")),
        ("train.tsv", "line 1", "2 columns", "4")),
    "no test set, found before the training": Case(missing("test.tsv"), ("test.tsv",)),
    "too few examples for one batch": Case(
        flags_set(train_batch_size=32), ("20 examples", "64", "--train_batch_size")),
    # The model's config.
    "no config": Case(missing("bert_config.json"), ("--bert_config_file", "No such file")),
    "a config that is not JSON": Case(
        cut("bert_config.json", 0.5), ("--bert_config_file", "JSON")),
    # Flags.
    "a length beyond the model's positions": Case(
        flags_set(max_seq_length=41), ("--max_seq_length=41", "40")),
    "a batch of 0": Case(flags_set(train_batch_size=0), ("--train_batch_size=0",)),
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
    "no vocabulary file": Case(
        in_turn(missing("vocab.txt"), flags_set(vocab_file=None)), ("--vocab_file",)),
    "no output directory": Case(flags_set(output_dir=None), ("--output_dir",)),
    "a misspelt flag": Case(flags_set(num_gpu=2), ("num_gpu", "num_gpus")),
    "a TPU": Case(flags_set(use_tpu=True), ("--use_tpu",)),
    "GPUs and CPU replicas": Case(
        flags_set(num_gpus=1), ("--num_gpus=1", "--num_cpu_replicas=2")),
    "two names of a flag that disagree": Case(
        flags_set(num_gpus=0, n_gpus=1), ("--num_gpus=0", "--n_gpus=1")),
    # The directories that are written to.
    "an output directory below a file": Case(
        flags_set(output_dir="{}/vocab.txt/out"), ("--output_dir", "vocab.txt/out")),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_and_status_2(name, command_line, capsys):
    assert_refused(CASES[name], *command_line, capsys)


def test_rows_that_are_odd_and_harmless_are_taken_and_counted(command_line, capsys):
    folder, flags = command_line
    row("\n   \nyes\t\nno\t \nyes\t" + "the cat sees " * 800_000 + "\n")(folder, flags)
    (folder / "dev.tsv").unlink()
    (folder / "dev.jsonl").write_text(JSON_GOOD + '\n{"label": "no", "text": 3.5, "more": null}\n')
    run_here({**flags, "do_predict": False})
    said = capsys.readouterr().err
    warnings = [line for line in said.splitlines()
                if line.startswith("WARNING") and "dev.jsonl: 28.6% of the tokens are [UNK]" not in line]
    path = folder / "train.tsv"
    assert warnings == [f"WARNING: {path}: skipped 2 blank lines",
                        f"WARNING: {path}: 2 examples have an empty text"]
    assert "23 examples x 1 epoch" in said
    assert results_of(folder / "out")["num_examples"] == 3


def test_the_command_that_the_cases_damage_is_a_good_one(command_line, capsys):
    folder, flags = command_line
    run_here(flags)
    assert (folder / "out" / "run.json").exists()
    assert len((folder / "out" / "predict.txt").read_text().splitlines()) == 1
    assert "error" not in capsys.readouterr().err
    with pytest.raises(AssertionError):
        assert_nothing_half_written(folder / "out")


def test_a_file_in_the_place_of_the_output_directory_is_left_as_it_is(command_line, capsys):
    folder, flags = command_line
    (folder / "out").write_text("important")
    with ends_with_error(capsys, "--output_dir", "out"):
        run_here(flags)
    assert (folder / "out").read_text() == "important"


def test_a_vocabulary_that_is_padded_in_the_config_is_taken_with_a_warning(command_line, capsys):
    folder, flags = command_line
    config(vocab_size=40)(folder, flags)
    flags.update(do_train=False, task_name="cola")
    with ends_with_error(capsys, "output_weights") as lines:
        run_here(flags)
    assert lines[0].startswith("WARNING: --vocab_file=")

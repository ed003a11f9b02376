"""The words of a command line: files of flags among them, and names that are not UTF-8."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from commands import ends_with_error, on_cola, results_in, run_here
from conftest import ROOT, write_cola
from pretraining import create_data
from runs import predict

LATIN_1 = os.fsdecode(b"n\xe9")


# --- Files of flags --------------------------------------------------------------------------


@pytest.fixture
def given(tiny_model, tmp_path):
    """The flags of a command, and the path of a file for more."""
    (tmp_path / "texts.txt").write_text("the cat\n\na dog\n")
    return dict(output_file=tmp_path / "out", vocab_file=tiny_model.vocab_file, num_processes=1,
                flagfile=tmp_path / "more"), tmp_path / "more"


def test_a_file_of_flags_stands_for_its_lines_and_may_name_another(given, tmp_path):
    flags, more = given
    more.write_text(f"# a comment\n--max_seq_length=16\r\n\n--flagfile={tmp_path}/last\n"
                    "// another\n--dupe_factor=3", encoding="utf-8")
    (tmp_path / "last").write_text(f"--input_file={tmp_path}/texts.txt\n--max_seq_length=24\n")
    run_here(flags, create_data)
    facts = json.loads((tmp_path / "out.json").read_text())
    assert facts["max_seq_length"] == 24 and facts["dupe_factor"] == 3


@pytest.mark.parametrize("make, said", [
    (lambda path: None, "No such file"), (lambda path: path.write_bytes(b"--input_file=\xff\n"), "is not UTF-8")])
def test_what_is_no_file_of_flags_is_one_line(make, said, given, capsys):
    flags, more = given
    make(more)
    with ends_with_error(capsys, "flagfile", said):
        run_here(flags, create_data)


# --- Names that are not UTF-8 ----------------------------------------------------------------


@pytest.fixture
def named(tmp_path):
    """A folder with such a name, with a small task."""
    (tmp_path / LATIN_1).mkdir()
    write_cola(tmp_path / LATIN_1 / "cola", train=8, dev=4)
    return tmp_path / LATIN_1


def test_a_name_that_is_not_utf8_is_one_line_that_says_what_helps(named, tiny_model, capsys):
    flags = dict(tiny_model._asdict(), task_name="cola", data_dir=named / "cola", do_train=True,
                 output_dir=named.parent / "out")
    with ends_with_error(capsys, r"--data_dir=", r"n\udce9/cola is not UTF-8", "rename it", "a link"):
        run_here(flags)
    with ends_with_error(capsys, r"--output_dir=", r"n\udce9 is not UTF-8"):
        run_here(dict(flags, data_dir=named.parent, output_dir=named))
    with ends_with_error(capsys, r"--output_file=", r"n\udce9 is not UTF-8"):
        run_here(dict(output_dir=named.parent, output_file=named), predict)
    assert not (named.parent / "out").exists()


def test_a_link_with_another_name_leads_to_such_a_folder(named, tiny_model, tmp_path):
    os.symlink(LATIN_1, str(tmp_path / "link"))
    for name in ("vocab.txt", "bert_config.json"):
        shutil.copy(os.path.join(os.path.dirname(tiny_model.vocab_file), name), str(named / name))
    run_here(dict(
        tiny_model._asdict(), vocab_file=tmp_path / "link" / "vocab.txt", task_name="cola",
        data_dir=tmp_path / "link" / "cola", output_dir=tmp_path / "link" / "out", do_train=True,
        do_eval=True, do_export=True, max_seq_length=16, train_batch_size=8, num_train_epochs=1,
        num_cpu_replicas=1))
    assert "eval_accuracy" in results_in(named / "out")
    run_here(dict(output_dir=tmp_path / "link" / "out" / "export", num_cpu_replicas=1, header=False,
                  input_file=tmp_path / "link" / "cola" / "test.tsv",
                  output_file=tmp_path / "link" / "found.tsv"), predict)
    assert (named / "found.tsv").read_text().startswith("label\t")


# --- Names that TensorFlow takes for patterns ------------------------------------------------


def test_brackets_in_the_path_of_a_checkpoint_are_refused_before_anything_is_written(tiny_model, tmp_path, capsys):
    flags = on_cola(tiny_model, tmp_path, train=8, output_dir=tmp_path / "lr[5e-5]")
    with ends_with_error(capsys, "lr[5e-5]: TensorFlow takes [ ]", "use another name, or give a link"):
        run_here(flags)
    assert not (tmp_path / "lr[5e-5]").exists()
    (tmp_path / "[old]").symlink_to(os.path.dirname(tiny_model.init_checkpoint))
    with ends_with_error(capsys, "--init_checkpoint=", "TensorFlow takes [ ]"):
        run_here(dict(flags, output_dir=tmp_path / "out", init_checkpoint=tmp_path / "[old]" / "bert_model.ckpt"))


# --- A standard error that nobody reads any more ---------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
@pytest.mark.parametrize("errors", ["2>/dev/full", "2>&-"])
def test_a_command_ends_with_its_status_although_its_last_line_cannot_be_written(errors):
    code = "from engine.cli import command; print('begun'); command.exit_with('no')"
    done = subprocess.run(["sh", "-c", f'exec "$@" {errors}', "sh", sys.executable, "-c", code], cwd=ROOT,
                          stdout=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"begun\n")

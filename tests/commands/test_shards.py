"""--shard: the parts of a command's input, run anywhere and in any order, have what one run has."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import extract_features
import processes
from augmentation import run as augment
from augmentations import SETTINGS
from commands import arguments, ends_with_error, run_here
from conftest import ROOT, on_tensorflow_1, on_tensorflow_2, sentences
from masked_lm import write_tiny_masked_lm
from pages import text_of
from pretraining import create_data, score
from rewriting import rewrite
from rewriting_files import made_up_texts
from rows import assert_same_rows, rows_in
from runs import predict
from services import RELEASE
from shell_scripts import forking_python_fixture  # noqa: F401 (a fixture)

TEXTS = [*sentences(6, 3), 'a text with "quotes" and\na line break', "é" * 7, ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture
def classifier(tiny_classifier):
    return dict(output_dir=tiny_classifier, num_cpu_replicas=1)


@pytest.fixture(scope="module")
def language_model(tiny_model, folder):
    return write_tiny_masked_lm(tiny_model, folder / "lm")._asdict()


@pytest.fixture(scope="module")
def lines(folder):
    (folder / "lines.txt").write_text("".join(
        text.replace("\n", " ") + "\n" for text in TEXTS), encoding="utf-8")
    return folder / "lines.txt"


def run_parts(module, flags, count):
    """Runs all parts, the last one first; returns their files, in order."""
    for index in reversed(range(count)):
        run_here({**flags, "shard": f"{index}/{count}"}, module)
    assert_all_there(module, flags, count)
    name, extension = os.path.splitext(str(flags["output_file"]))
    return [f"{name}-{index:05}-of-{count:05}{extension}" for index in range(count)]


def assert_all_there(module, flags, count):
    """--check_shards finds no part missing, and does nothing else."""
    folder = pathlib.Path(str(flags.get("output_file") or flags["output_dir"] / "file")).parent
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with contextlib.redirect_stdout(io.StringIO()) as listed, \
            contextlib.redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit) as ended:
        run_here({**flags, "check_shards": count}, module)
    assert not ended.value.code and not listed.getvalue()
    assert said.getvalue().splitlines()[-1] == f"all {count} parts are there"
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


# A part has more texts than parts, or none.
@pytest.mark.parametrize("module, name, ending, flags, count", [
    pytest.param(predict, "texts.csv", "jsonl", {}, 3, marks=on_tensorflow_1),
    pytest.param(predict, "texts.jsonl", "tsv", {}, 11, marks=on_tensorflow_2),
    pytest.param(extract_features, "lines.txt", "jsonl", dict(pooling="mean"), 4, marks=on_tensorflow_1),
    pytest.param(score, "lines.txt", "jsonl", {}, 4, marks=on_tensorflow_2),
    pytest.param(rewrite, "clauses.txt", "jsonl", dict(num_candidates=4), 3, marks=on_tensorflow_1)])
def test_the_parts_of_a_command_have_the_rows_of_one_run(
        module, name, ending, flags, count, classifier, language_model, lines, tmp_path):
    csv = "".join('"{}",{}\n'.format(text.replace('"', '""'), len(text)) for text in TEXTS)
    for path, text in {
            "texts.csv": f"text,number\n{csv}", "lines.txt": lines.read_text(encoding="utf-8"),
            "texts.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
            "clauses.txt": "".join(f"{text}\n" for text in made_up_texts(9, 5))}.items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    shutil.copytree(os.path.join(RELEASE, "scorer"), str(tmp_path / "scorer"))  # in which it keeps a store
    model = {predict: classifier, rewrite: dict(
        output_dir=tmp_path / "scorer", num_cpu_replicas=1, pool_file=tmp_path / "clauses.txt")}.get(
        module, dict(language_model, max_seq_length=16, num_cpu_replicas=1))
    flags = dict(model, **flags, input_file=tmp_path / name, output_file=tmp_path / f"found.{ending}")
    run_here(flags, module)
    whole = rows_in([flags["output_file"]])
    assert len(whole) == (9 if module is rewrite else len(TEXTS))
    assert_same_rows(rows_in(run_parts(module, flags, count)), whole)


def test_augmented_rows(language_model, tmp_path):
    """With a key that the task does not read, and blank lines."""
    (tmp_path / "train.jsonl").write_text("".join(
        json.dumps({"text": text, "label": index % 2, "id": index}) + "\n" * (1 + index % 3)
        for index, text in enumerate(sentences(20, 3))))
    flags = {**language_model, **SETTINGS, "N": 2, "num_cpu_replicas": 1, "task_name": "file",
             "train_file": tmp_path / "train.jsonl"}
    run_here({**flags, "output_dir": tmp_path / "whole"}, augment)
    for index in range(3):
        run_here({**flags, "output_dir": tmp_path / "cut", "shard": f"{index}/3"}, augment)
    assert_all_there(augment, {**flags, "output_dir": tmp_path / "cut"}, 3)
    whole = (tmp_path / "whole" / "train.jsonl").read_text()
    assert "".join((tmp_path / "cut" / f"train-{index:05}-of-00003.jsonl").read_text()
                   for index in range(3)) == whole and whole


def test_examples_of_a_part_are_those_of_its_documents_alone(tiny_model, tmp_path):
    documents = ["".join(f"{text}\n" for text in sentences(6, seed)) for seed in range(9)]
    (tmp_path / "text.txt").write_text("\n".join(documents))
    flags = dict(input_file=tmp_path / "text.txt", output_file=tmp_path / "examples.tfrecord",
                 num_processes=1, dupe_factor=1, vocab_file=tiny_model.vocab_file, max_seq_length=16,
                 max_predictions_per_seq=3)
    paths = run_parts(create_data, flags, 3)
    begins = [sum(len(each) + 1 for each in documents[:number]) for number in range(len(documents))]
    size = os.path.getsize(str(tmp_path / "text.txt"))
    for index, path in enumerate(paths):
        own = [document for begin, document in zip(begins, documents)
               if size * index // 3 <= max(begin - 1, 0) < size * (index + 1) // 3]
        (tmp_path / "own.txt").write_text("\n".join(own))
        run_here({**flags, "input_file": tmp_path / "own.txt", "output_file": tmp_path / f"{index}"},
                 create_data)
        with open(path, "rb") as file:
            assert file.read() == (tmp_path / f"{index}").read_bytes()
    run_here({**flags, "shard": "499/500"}, create_data)  # begins in the last document
    with open(str(tmp_path / "examples-00499-of-00500.tfrecord.json")) as file:
        assert json.load(file)["num_examples"] == 0


def test_a_part_that_is_there_is_left_as_it_is_and_one_of_something_else_is_refused(
        classifier, lines, tmp_path, capsys):
    texts, path = tmp_path / "texts.txt", tmp_path / "found-00001-of-00002.tsv"
    texts.write_bytes(lines.read_bytes())
    flags = dict(classifier, input_file=texts, output_file=tmp_path / "found.tsv", header=False,
                 shard="1/2")
    run_here(flags, predict)
    time = path.stat().st_mtime_ns
    run_here(dict(flags, num_cpu_replicas=2), predict)
    with ends_with_error(capsys, "was made with another --predict_batch_size"):
        run_here(dict(flags, predict_batch_size=3), predict)
    texts.write_bytes(lines.read_bytes()[:-30] + b"y" * 29 + b"\n")
    with ends_with_error(capsys, f"was made with another input: {texts} has another content"):
        run_here(flags, predict)
    texts.write_bytes(lines.read_bytes())  # at another time
    run_here(flags, predict)
    assert path.stat().st_mtime_ns == time


def test_missing_parts_and_those_of_something_else_are_listed(classifier, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(9)))
    flags = dict(classifier, input_file=tmp_path / "texts.txt", output_file=tmp_path / "found.tsv",
                 header=False)

    def listed():
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run_here(dict(flags, check_shards=4), predict)
        assert ended.value.code == 1
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]

    parts = [tmp_path / f"found-0000{index}-of-00004.tsv" for index in range(4)]
    for index in (0, 1, 3):
        run_here(dict(flags, shard=f"{index}/4"), predict)
    content = parts[0].read_bytes()
    assert listed() == [["2/4", "missing"]]
    parts[0].write_bytes(content[:-9] + bytes(9))
    os.truncate(f"{parts[1]}.json", 30)
    run_here(dict(flags, shard="2/4", output_file=tmp_path / "other.tsv", format="jsonl"), predict)
    for path in tmp_path.glob("other-*"):
        path.rename(path.parent / path.name.replace("other", "found"))
    for line, number, said in zip(listed(), ("0/4", "1/4", "2/4"), (
            "00000-of-00004.tsv is not as it was written", "00001-of-00004.tsv.json is not valid JSON",
            "00002-of-00004.tsv was made with another --format: was jsonl, now None")):
        assert line[0] == number and said in line[1]
    run_here(dict(flags, shard="0/4"), predict)  # writes it anew
    assert parts[0].read_bytes() == content


def test_a_killed_part_goes_on_where_it_was(classifier, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(60)))
    flags = dict(classifier, input_file=tmp_path / "texts.txt", header=False, shard="1/2")
    run_here(dict(flags, output_file=tmp_path / "whole.tsv"), predict)
    program = ("import os, sys\nfrom engine.cli import command\nfrom engine.disk import artifact\n"
               "from runs import predict\npredict.Predictions.chunk_size = 8 * 512\n"
               "write = artifact.files.write_json\n"
               "def killed(path, value):\n    write(path, value)\n"
               f"    if value['rows'] == 16: os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
               "artifact.files.write_json = killed\n"
               "command.run(predict.main, predict.define_flags(), usage='', argv=sys.argv)\n")
    again = dict(flags, output_file=tmp_path / "again.tsv")
    process = processes.run(["-c", program, *arguments(again)])
    assert process.returncode == -signal.SIGKILL
    part = tmp_path / "again-00001-of-00002.tsv.part"
    assert part.exists()
    run_here(again, predict)
    assert f"Going on with {part}: 16 " in capsys.readouterr().err
    assert_same_rows(rows_in([tmp_path / "again-00001-of-00002.tsv"]),
                rows_in([tmp_path / "whole-00001-of-00002.tsv"]))


@pytest.mark.parametrize("before, variable", [
    pytest.param("'", "SLURM_ARRAY_TASK_ID", marks=on_tensorflow_1),
    pytest.param('[sh, -c, "', "JOB_COMPLETION_INDEX", marks=on_tensorflow_2)])
def test_a_scheduler_runs_the_line_of_the_page(
        classifier, lines, tmp_path, before, variable, forking_python):
    line = next(line for line in text_of("docs/bulk.md").splitlines() if f"${variable}/" in line)
    line = line.partition(before)[2].rstrip("]'\"")
    for flag, value in (("output_dir=out/model", classifier["output_dir"]),
                        ("input_file=texts.csv", lines), ("output_file=found.jsonl", tmp_path / "found.jsonl")):
        line = line.replace(flag, f"{flag.split('=')[0]}={value}")
    subprocess.run(["sh", "-c", line.replace("python", forking_python, 1)], check=True, cwd=ROOT,
                   env={**os.environ, variable: "17"})
    assert (tmp_path / "found-00017-of-00200.jsonl").exists()


@pytest.mark.parametrize("changes, expected", [
    (dict(shard="3/3"), "--shard=3/3: must be I/N"),
    (dict(shard="a"), "--shard=a: must be I/N"),
    (dict(shard="0/2", output_file=None), "--shard=0/2 needs --output_file"),
    (dict(check_shards=2, input_file=None), "--check_shards=2 needs --input_file"),
    (dict(shard="0/2", input_file="lines.txt.gz"), "is compressed")])
def test_flags_that_name_no_part_are_refused(classifier, lines, tmp_path, capsys, changes, expected):
    (tmp_path / "lines.txt.gz").write_bytes(b"text\n")
    if changes.get("input_file"):
        changes = dict(changes, input_file=tmp_path / changes["input_file"])
    with ends_with_error(capsys, expected):
        run_here(dict(classifier, **{**dict(input_file=lines, output_file=tmp_path / "found.tsv",
                                            header=False), **changes}), predict)

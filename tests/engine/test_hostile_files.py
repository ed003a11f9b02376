"""Links, pipes, devices, endless files and control characters where a command reads, writes and shows."""

import contextlib
import glob
import os
import pathlib
import socket
import time

import numpy as np
import pytest

from augmentation import word_vectors
from commands import arguments, start_command
from encoder import huggingface, task_json, vocabulary, variables
from encoder.model_files import load_config
from engine import log
from engine.checkpoints import checkpoints
from engine.cli import command
from engine.data import text_files
from engine.data.store import Column, open_or_build
from engine.data.text_files import OddRows
from engine.disk import files, parts, patterns, provenance
from engine.disk.artifact import Artifact, GrowingFile
from engine.errors import UserError
from engine.training import run_record
from pretraining import texts
from runs import squad_files, table_head
from tagging.formats import Layout, open_file

ESCAPE = "\x1b[31m"  # makes a terminal's text red
LINKS = ("checkpoint", "model.ckpt-3.data-00000-of-00001")
MINE = {"mine.tmp-2/kept", "notes.tmp-20240101", ".bert-tmp-notes"}


# --- A training whose output directory and data somebody else has prepared ------------------


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The folder of a training, what it said, and the ports that it had open."""
    folder = tmp_path_factory.mktemp("hostile")
    data, out = folder / f"data{ESCAPE}", folder / "out"
    data.mkdir()
    rows = f"yes{ESCAPE}\tthe cat\nno\ta dog\n" * 6
    for name, text in (("train", f"label\ttext\n{rows}"), ("dev", f"label\ttext\n{rows}"),
                       ("test", "text\ncat\ndog\n")):
        (data / f"{name}.tsv").write_text(text)
    out.mkdir()
    for name in LINKS:
        (folder / name).write_text("not to be changed")
        os.symlink(str(folder / name), str(out / name))
    os.symlink(str(folder / "not-to-be-made"), str(out / "run.json"))
    for name in MINE:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("")
    process, ports = start_command(*arguments(dict(
        tiny_model._asdict(), task_name="file", data_dir=data, output_dir=out, max_seq_length=16,
        train_batch_size=2, num_train_epochs=1, num_cpu_replicas=2, do_train=True, do_eval=True,
        do_predict=True, do_export=True))), set()
    while process.poll() is None:
        ports |= ports_of(process.pid)
        time.sleep(0.05)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return folder, said, ports


def ports_of(process_id):
    """The addresses of a process's sockets, but not those within the machine, which have paths."""
    inodes = set()
    for path in glob.glob(f"/proc/{process_id}/fd/*"):
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            inodes.add(os.readlink(path))
    lines = [line.split() for name in ("tcp", "tcp6", "udp", "udp6")
             for line in (pathlib.Path("/proc/net") / name).read_text().splitlines()[1:]]
    return {words[1] for words in lines if f"socket:[{words[9]}]" in inodes}


def test_a_training_in_one_process_opens_no_port(trained):
    earlier = ports_of(os.getpid())  # of other tests
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen(1)
        assert len(ports_of(os.getpid()) - earlier) == 1
    assert trained[2] == set()


def test_no_link_is_written_through_others_files_stay_and_nothing_temporary_does(trained):
    folder, _, _ = trained
    for name in LINKS:
        assert (folder / name).read_text() == "not to be changed"
    assert not (folder / "not-to-be-made").exists()
    for name in (*LINKS, "run.json"):
        assert not os.path.islink(str(folder / "out" / name))
    assert checkpoints.latest(str(folder / "out")).global_step == 3
    for name in MINE:
        assert (folder / "out" / name).exists()
    left = {name for name in os.listdir(str(folder / "out")) if "tmp" in name}
    assert left == {name.split("/")[0] for name in MINE}


def test_control_characters_are_escaped_for_people_and_stay_in_predictions(trained):
    folder, said, _ = trained
    assert ESCAPE not in said and f"data{log.visible(ESCAPE)}" in said
    card = (folder / "out" / "export" / "README.md").read_text(encoding="utf-8")
    assert ESCAPE not in card and r"yes\x1b[31m" in card
    assert set((folder / "out" / "predict.txt").read_text().splitlines()) <= {f"yes{ESCAPE}", "no"}


# --- What is written ------------------------------------------------------------------------


@pytest.mark.parametrize("writing, make, mode", [
    (files.atomic_path, lambda path: open(path, "w").close(), 0o666),
    (files.atomic_folder, lambda path: None, 0o777)])
def test_a_file_and_a_folder_are_written_where_nobody_else_can_enter(writing, make, mode, tmp_path):
    with writing(str(tmp_path / "name")) as temporary:
        parent = os.path.dirname(temporary)
        assert os.stat(parent).st_mode & 0o777 == 0o700
        assert os.path.dirname(parent) == str(tmp_path)
        make(temporary)
    mask = os.umask(0)
    os.umask(mask)
    assert os.stat(str(tmp_path / "name")).st_mode & 0o777 == mode & ~mask
    assert os.listdir(str(tmp_path)) == ["name"]


def test_a_link_in_the_place_of_a_folder_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("")
    os.symlink("elsewhere", str(tmp_path / "export"))
    with files.atomic_folder(str(tmp_path / "export")) as draft:
        files.write_text(os.path.join(draft, "new"), "")
    assert not os.path.islink(str(tmp_path / "export"))
    assert os.listdir(str(tmp_path / "export")) == ["new"]
    assert os.listdir(str(tmp_path / "elsewhere")) == ["mine"]


def test_a_link_in_the_place_of_an_unfinished_file_is_replaced(tmp_path):
    (tmp_path / "victim").write_text("not to be changed")
    with pytest.raises(KeyboardInterrupt), GrowingFile(str(tmp_path / "rows"), {}).growing("rows") as file:
        file.append("a\n", 1)
        raise KeyboardInterrupt
    os.remove(str(tmp_path / "rows.part"))
    os.symlink(str(tmp_path / "victim"), str(tmp_path / "rows.part"))
    with GrowingFile(str(tmp_path / "rows"), {}).growing("rows") as file:
        assert file.num_rows == 0
    assert (tmp_path / "victim").read_text() == "not to be changed"


# --- What is read ---------------------------------------------------------------------------


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


PLACE = {"pipe": os.mkfifo, "device": lambda path: os.symlink("/dev/zero", path), "sparse": sparse}
# What is in the way, and how it is read.
READERS = {
    "vocab.txt": [lambda path: vocabulary.load_tokenizer(path, True),
                  lambda path: vocabulary.read_tokens(path, 10), vocabulary.content_hash],
    "bert_config.json": [load_config],
    "task.json": [lambda path: task_json.read(os.path.dirname(path))],
    "run.json": [lambda path: run_record.load(os.path.dirname(path))],
    "evaluations.json": [lambda path: checkpoints.read_evaluations(os.path.dirname(path))],
    "model.safetensors": [lambda path: huggingface.open_weights(os.path.dirname(path), variables.TYPES["bert"])],
    "tokenizer.json": [lambda path: vocabulary.read_tokens(os.path.dirname(path), 10)],
    "questions.json": [lambda path: next(squad_files.paragraphs(path))],
    "rows.json": [lambda path: Artifact(path[:-len(".json")], {}).record()]}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", PLACE)
def test_a_file_that_is_read_whole_is_regular_and_of_bounded_size(kind, name, tmp_path, alarm):
    path = str(tmp_path / name)
    PLACE[kind](path)
    for read in READERS[name]:
        with pytest.raises(UserError) as error:
            read(path)
        assert name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", PLACE)
def test_what_only_saves_time_is_made_anew(kind, tmp_path, alarm):
    (tmp_path / "train.tsv").write_text("text")
    memory = tmp_path / "hashes.json"
    PLACE[kind](str(memory))
    digest = provenance.content_hash(str(tmp_path / "train.tsv"), str(tmp_path))
    assert digest == files.hash_of(b"text") and digest in memory.read_text()
    columns = {"ids": Column("uint16", ragged=False)}

    def build():
        return open_or_build(str(tmp_path), "s", {}, columns, lambda: [{"ids": np.arange(3)}])
    description = os.path.join(build().directory, "store.json")
    os.remove(description)
    PLACE[kind](description)
    assert build().flat("ids").tolist() == [0, 1, 2]


@pytest.fixture
def linked(tmp_path):
    """A folder of texts with links to itself, to a folder in it and to one beside it, which has one back."""
    for name in ("in/a.txt", "in/z/b.txt", "beside/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("the cat\n")
    for name, target in (("again", "."), ("latest", "z"), ("more", "../beside"), ("z/top", ".."),
                         ("none", "none"), ("copy.txt", "a.txt"), ("../beside/back", "../in")):
        os.symlink(target, str(tmp_path / "in" / name))
    return tmp_path / "in"


def test_each_folder_of_texts_is_read_once_whatever_links_lead_to_it(linked, capsys, alarm):
    assert patterns.find(str(linked), "--input_file") == [
        str(linked / name) for name in ("a.txt", "copy.txt", "more/c.txt", "z/b.txt")]
    for names in (f"{linked}", f"{linked}/[!n]*", f"{linked}/more, {linked}", f"{linked}/latest",
                  f"{linked}/a.txt, {linked}"):
        capsys.readouterr()
        paths = patterns.find(names, "--input_file")
        assert sorted(map(os.path.basename, paths)) == ["a.txt", "b.txt", "c.txt", "copy.txt"]
        warnings = capsys.readouterr().err.splitlines()
        assert len(warnings) == 1 and "--input_file: " in warnings[0] and "the first: " in warnings[0]


# Whoever reads lines.
LINE_READERS = {
    "tsv": lambda path: list(text_files.tsv_rows(path, OddRows("", skips_lines=True))),
    "csv": lambda path: list(text_files.csv_rows(path)),
    "head": lambda path: table_head.read(path, None),
    "tags": lambda path: list(open_file(path, Layout(), has_tags=False).sentences()),
    "text": lambda path: list(texts.read_lines(path)),
    "vectors": word_vectors.load,
    "first part": lambda path: list(text_files.lines(parts.parts_of([path], 0, 3)[0]))}


@pytest.mark.parametrize("name", LINE_READERS)
def test_a_line_without_an_end_is_refused_with_file_and_line(name, tmp_path, alarm):
    path = tmp_path / "texts.tsv"
    path.write_bytes(b"cat 1\n")
    os.truncate(str(path), 1 << 40)
    with pytest.raises(UserError, match="texts.tsv, line 2: longer than 16,777,216 bytes"):
        LINE_READERS[name](str(path))


# --- What is shown --------------------------------------------------------------------------


def test_a_message_is_one_line_that_a_terminal_shows_and_does_not_obey(capsys):
    hostile = "a\x1b]0;title\x07\x9b31m\u202etxt.exe\r\nerror: forged \u6211\U0001f600 b"
    shown = r"a\x1b]0;title\x07\x9b31m\u202etxt.exe\r\nerror: forged " + "\u6211\U0001f600 b"
    log.warn(hostile)
    assert capsys.readouterr().err == f"WARNING: {shown}\n"
    with pytest.raises(SystemExit):
        command.exit_with(hostile)
    assert capsys.readouterr().err == f"error: {shown}\n".replace(r"\r\n", " ")

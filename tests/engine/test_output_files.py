"""Where a command may write: a new file, through a link, into a device or a pipe; a new folder."""

import os
import threading

import pytest

import processes
from engine.disk import files
from engine.errors import UserError


def write(path):
    with files.output(str(path)) as file:
        file.write("answers\n")


def test_standard_output_is_utf8_in_every_locale():
    code = ("from absl import flags; from engine.cli import command; "
            "command.run(lambda values: print('\u6211'), flags.FlagValues(), usage='')")
    process = processes.run(["-c", code], env={**os.environ, "PYTHONIOENCODING": "latin-1"},
                            encoding="utf-8")
    assert (process.returncode, process.stdout) == (0, "\u6211\n"), process.stderr


def test_a_link_stays_one_and_its_file_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real.tsv").write_text("old\n")
    os.symlink("there/real.tsv", str(tmp_path / "link.tsv"))
    write(tmp_path / "link.tsv")
    assert os.path.islink(str(tmp_path / "link.tsv"))
    assert (tmp_path / "there" / "real.tsv").read_text() == "answers\n"


def test_a_pipe_is_written_to_as_it_is(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join(timeout=60)
    assert read == ["answers\n"] and os.listdir(str(tmp_path)) == ["pipe"]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="the system has no /dev/stdout")
def test_standard_output_may_be_given_by_its_name_also_where_it_is_a_file(capfd):
    os.write(1, b"before\n")
    write("/dev/stdout")
    write(os.devnull)
    assert capfd.readouterr().out == "before\nanswers\n"


def test_a_mount_point_is_no_new_folder(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path / "disk"))
    with pytest.raises(UserError, match="disk is a file, a mount point or not empty"):
        with files.new_folder(str(tmp_path / "disk"), "--output_dir"):
            pass
    with files.new_folder(str(tmp_path / "disk" / "model"), "--output_dir") as folder:
        with open(os.path.join(folder, "vocab.txt"), "w") as file:
            file.write("[PAD]\n")
    assert os.listdir(str(tmp_path / "disk" / "model")) == ["vocab.txt"]

"""Numbered versions of an export: how they are written, and which one is served."""

import os
import shutil

import pytest
from absl import flags

from commands import ends_with_error, run_here
from engine.cli import device_flags
from engine.disk import files
from serving import model


def export(folder, version):
    run_here(dict(output_dir=folder, do_export=True, export_version=version))


@pytest.fixture(scope="module")
def exported(tiny_classifier, tmp_path_factory):
    """A training with the versions 1 and 2 of its export."""
    folder = tmp_path_factory.mktemp("versions") / "out"
    shutil.copytree(str(tiny_classifier), str(folder))
    export(folder, "next")
    export(folder, "2")
    return folder


def test_versions_stand_beside_each_other_and_none_is_replaced(exported, tmp_path, capsys):
    shutil.copytree(str(exported), str(tmp_path / "out"))
    export(tmp_path / "out", "1")
    assert "export/1 is whole: nothing is left to do" in capsys.readouterr().err
    with ends_with_error(capsys, "--export_version=1", "not as the whole export"):  # in int8 it is not there
        run_here(dict(output_dir=tmp_path / "out", do_export=True, export_version="1", export_int8=True))
    os.remove(str(tmp_path / "out" / "export" / "1" / "README.md"))
    with ends_with_error(capsys, "--export_version=1", "is there already", "next"):
        export(tmp_path / "out", "1")
    version = tmp_path / "out" / "export" / "2"
    for path in (version / "variables" / "variables.data-00000-of-00001", version / "saved_model.pb",
                 *(version / "assets.extra").glob("serving-*.onnx")):
        content = path.read_bytes()
        path.write_bytes(content[:-10] + bytes(10))
        with ends_with_error(capsys, "--export_version=2", "is there already, not as the whole export", "next"):
            export(tmp_path / "out", "2")
        path.write_bytes(content)
    for wrong in ("0", "-1", "1.5", "latest", "../1"):
        with ends_with_error(capsys, f"--export_version={wrong}", "a number from 1 on, or next"):
            export(tmp_path / "out", wrong)
    with ends_with_error(capsys, "holds numbered versions", "--export_version=next"):
        export(tmp_path / "out", None)
    with ends_with_error(capsys, "--export_version needs --do_export"):
        run_here(dict(output_dir=tmp_path / "out", do_eval=True, export_version="next"))
    export(tmp_path / "out", "7")
    with files.written_alone(str(tmp_path / "out" / "export" / "8")):  # another process exports
        export(tmp_path / "out", "next")
        with ends_with_error(capsys, "export/8 is being written by process"):
            export(tmp_path / "out", "8")
    assert sorted(name for name in os.listdir(str(tmp_path / "out" / "export"))
                  if not name.startswith(".")) == ["1", "2", "7", "9"]
    shutil.rmtree(str(tmp_path / "out" / "export"))
    export(tmp_path / "out", None)
    with ends_with_error(capsys, "holds no numbered versions but something else"):
        export(tmp_path / "out", "next")


def test_the_newest_version_that_opens_is_served(exported, tmp_path, capfd):
    shutil.copytree(str(exported / "export"), str(tmp_path / "models"))
    os.mkdir(str(tmp_path / "models" / "3"))
    values = flags.FlagValues()
    model.define_flags(values)
    values(["", "--num_cpu_replicas=1", "--engine=tensorflow"])
    served = model.serve("toy", str(tmp_path / "models"), values,
                              device_flags.find_devices(values, training=False))
    assert served.sha == "2" and "the version before it is served" in capfd.readouterr().err
    assert served.card.startswith("# ")
    served.close()

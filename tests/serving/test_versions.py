"""Numbered versions of an export: which one is served."""

import os
import shutil

from absl import flags

from commands import run_here
from engine.cli import device_flags
from serving import model


def test_the_newest_version_that_opens_is_served(tiny_classifier, tmp_path, capfd):
    shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    run_here(dict(output_dir=tmp_path / "out", do_export=True))
    for version in ("1", "2"):
        shutil.copytree(str(tmp_path / "out" / "export"), str(tmp_path / "models" / version))
    os.mkdir(str(tmp_path / "models" / "3"))
    values = flags.FlagValues()
    model.define_flags(values)
    values(["", "--num_cpu_replicas=1", "--engine=tensorflow"])
    served = model.serve("toy", str(tmp_path / "models"), values,
                              device_flags.find_devices(values, training=False))
    assert served.sha == "2" and "the version before it is served" in capfd.readouterr().err
    assert served.card.startswith("# ")
    served.close()

"""A command that has moved still runs under its old name, and says the new one."""

import importlib
import subprocess
import sys

import pytest

from conftest import ROOT, on_tensorflow_1


@on_tensorflow_1
@pytest.mark.parametrize("old, new", [("engine.convert_checkpoint", "encoder.convert")])
def test_an_old_name_runs_the_command_after_one_line_that_says_the_new_one(old, new):
    explained = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", old, "--help"], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True)
    assert explained.returncode == 0
    assert explained.stderr == f"WARNING: python -m {old} is now python -m {new}\n"
    for flag in importlib.import_module(new).define_flags():
        assert f"--{flag}:" in explained.stdout or f"--[no]{flag}:" in explained.stdout

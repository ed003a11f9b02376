"""Runs the scripts on a machine that has next to nothing."""

import os
import shutil
import subprocess

import pytest

from conftest import ROOT

TOOLS = ("bash", "cat", "cksum", "dirname", "mkdir")


@pytest.fixture(name="bare_machine")
def bare_machine_fixture(tmp_path):
    """The environment variables of a machine without any Python."""
    for tool in TOOLS:
        os.symlink(shutil.which(tool), tmp_path / tool)
    return {"PATH": str(tmp_path), "HOME": str(tmp_path)}


def run(machine, command, **variables):
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {command}"], cwd=ROOT, encoding="utf-8",
        env={**machine, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_one_error_line(result, *parts):
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1
    for part in parts:
        assert part in result.stderr

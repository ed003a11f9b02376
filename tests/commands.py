"""How tests call the command: in a process of its own or, where many are needed, in this one."""

import os
import subprocess
import sys
from types import ModuleType
from typing import Dict, List

import run_classifier
from conftest import ROOT
from engine import command

Flags = Dict[str, object]


def arguments(flags: Flags) -> List[str]:
    """`--name=value` for each flag that is not None."""
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def run_here(flags: Flags, module: ModuleType = run_classifier) -> None:
    """Runs a command in this process; raises SystemExit where it ends with an error."""
    command.run(module.main, module.define_flags(), usage="",
                argv=[f"{module.__name__}.py", *arguments(flags)])


def run_command(*args: str, cards: str = "") -> subprocess.CompletedProcess:
    """Runs `python run_classifier.py` as people do; `cards` is CUDA_VISIBLE_DEVICES."""
    process = start_command(*args, cards=cards)
    output, errors = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def start_command(*args: str, cards: str = "") -> subprocess.Popen:
    """Starts it and does not wait."""
    return subprocess.Popen(
        [sys.executable, "run_classifier.py", *args], cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": cards},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

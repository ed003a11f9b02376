"""What every benchmark does with its figures: the machine beside them, a section in results.md."""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

from engine.disk import files

SEEDS = (1, 2, 3)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "benchmarks", "results.md")


def parser_of(description: str, *paths: str) -> argparse.ArgumentParser:
    """A parser with flags that are paths and required; they become absolute."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in paths:
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    return parser


def run_here(*words: str, **options: Any) -> subprocess.CompletedProcess:
    """Runs a program of ours, by this interpreter."""
    return subprocess.run([sys.executable, *words], cwd=ROOT, check=True, **options)


def answer_of(python: str, *words: str, **options: Any) -> Dict[str, Any]:
    """The JSON object in the last line that a program prints."""
    printed = subprocess.run([python, *words], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                             universal_newlines=True, **options).stdout
    return json.loads(printed.splitlines()[-1])


def machine() -> str:
    """Processor and cores, as the operating system names them."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file
                          if line.startswith("model name")), model)
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def versions_of(python: Optional[str], *packages: str) -> Dict[str, str]:
    """Versions of packages in the environment of an interpreter, if there is one."""
    if not python:
        return {}
    code = ("import importlib, os, sys; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
            "for name in sys.argv[1:]: print(importlib.import_module(name).__version__)")
    printed = subprocess.run([python, "-c", code, *packages], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, universal_newlines=True, check=True).stdout
    return dict(zip(packages, printed.split()[-len(packages):]))


def commit() -> str:
    """The checked-out commit; "-dirty" where more than the results has been changed since.

    Where the tree came without its repository, what its file COMMIT says.
    """
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()

    path = os.path.join(ROOT, "COMMIT")
    if not os.path.exists(os.path.join(ROOT, ".git")) and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    if not shutil.which("git"):
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".",
                  ":!benchmarks/results.md")
    return (git("describe", "--always") or "unknown") + ("-dirty" if changed else "")


def remembered(path: str, run: Callable[[], Any]) -> Any:
    """The JSON value of a file, which is what `run` returns if the file is not there."""
    if not os.path.exists(path):
        files.write_json(path, run())
    return files.read_json(path, "result")


def row_of_seeds(name: str, metrics: Sequence[str], results: Sequence[Dict[str, float]]) -> Dict[str, str]:
    """A row of the metrics of trainings that differ in their seeds alone."""
    return {"training": name,
            **{metric: mean_and_deviation([result[metric] for result in results]) for metric in metrics},
            "each seed": "; ".join(
                ", ".join(f"{result[metric]:.3f}" for metric in metrics) for result in results)}


def mean_and_deviation(values: Sequence[float]) -> str:
    """'0.512 ± 0.004': mean and sample standard deviation; of one value '0.512'."""
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def ratios(ours: Sequence[float], peers: Sequence[float]) -> str:
    """'4.1 x (3.9 - 4.4 over 5 pairs)': median and range of the ratios, pair by pair."""
    pairs = np.array(ours) / np.array(peers)
    return f"{np.median(pairs):.2f} × ({pairs.min():.2f} – {pairs.max():.2f} over {len(pairs)} pairs)"


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """A table in Markdown, with the columns of the first row."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def command() -> str:
    """The command that runs, without the flags that name paths: they are this machine's."""
    module = os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)[:-len(".py")].replace(os.sep, ".")
    words = " ".join(map(shlex.quote, sys.argv[1:]))
    return re.sub(r" (--\w+[= ])?\S*/\S*", "", f"python -m {module} {words}").strip()


def append(title: str, rows: Sequence[Dict[str, Any]], **versions: str) -> None:
    """Prints a table and appends it, with command, machine, versions and commit, to results.md."""
    versions = {**versions_of(sys.executable, "tensorflow"), **versions}
    about = (f"`{command()}` on {datetime.date.today()}, {machine()}; "
             + ", ".join(f"{name} {version}" for name, version in versions.items())
             + f"; commit {commit()}")
    text = f"\n## {title}\n\n{about}\n\n{table(rows)}\n"
    print(text)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(text)

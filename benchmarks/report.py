"""What every benchmark does with its figures: the machine beside them, a section in results.md."""

import datetime
import os
import platform
import shutil
import subprocess
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

from engine.disk import files

SEEDS = (1, 2, 3)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "benchmarks", "results.md")


def machine() -> str:
    """Processor and cores, as the operating system names them."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file
                          if line.startswith("model name")), model)
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def version_of(python: str, package: str) -> str:
    """Version of a package in the environment of an interpreter."""
    code = (f"import importlib, os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; "
            f"print(importlib.import_module('{package}').__version__)")
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True, check=True).stdout.split()[-1]


def commit() -> str:
    """The checked-out commit; "-dirty" where more than the results has been changed since."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()

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
    """'0.512 ± 0.004': mean and sample standard deviation."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def ratios(ours: Sequence[float], peers: Sequence[float]) -> str:
    """'4.1 x (3.9 - 4.4 over 5 pairs)': median and range of the ratios, pair by pair."""
    pairs = np.array(ours) / np.array(peers)
    return f"{np.median(pairs):.2f} × ({pairs.min():.2f} – {pairs.max():.2f} over {len(pairs)} pairs)"


def append(title: str, rows: Sequence[Dict[str, str]], *, command: str,
           versions: Optional[Dict[str, str]] = None) -> None:
    """Prints a table and appends it, with machine, versions and commit, to results.md."""
    names = list(rows[0])
    lines = [f"## {title}", "",
             f"`{command}` on {datetime.date.today()}, {machine()}; "
             + ", ".join(f"{name} {version}" for name, version in (versions or {}).items())
             + f"; commit {commit()}", "",
             "| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    text = "\n" + "\n".join(lines) + "\n"
    print(text)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(text)

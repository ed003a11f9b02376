"""What every benchmark does with its figures: the machine beside them, a section in results.md."""

import concurrent.futures
import datetime
import multiprocessing
import os
import platform
import shutil
import subprocess
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

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


def peers_process(prepare: Callable[..., None], *arguments: Any
                  ) -> concurrent.futures.ProcessPoolExecutor:
    """A process for a peer: how many threads TensorFlow has is decided once in a process.

    `prepare` is called there, once; what is submitted later runs there, too.
    """
    return concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=prepare,
        initargs=arguments)


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
    text = "\n".join(lines) + "\n\n"
    print(text)
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(text)

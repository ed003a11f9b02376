"""What campaigns of random faults share: runs that are not repeated, and weights to compare."""

import argparse
import json
import os
import sys
from typing import Any, Callable, Dict, Iterable, List

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

import numpy as np

from benchmarks import report
from engine.checkpoints import checkpoints
from engine.disk import files

import tensorflow.compat.v1 as tf


def results_of(work_dir: str, prefix: object, runs: int,
               run: Callable[[int], Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What `run` returned for each number, of JSON's types.

    Each result is printed without its "log", and kept with the commit in a file,
    WORK_DIR/PREFIX-NUMBER.json: called again, this goes on with the runs that have no file.
    """
    os.makedirs(work_dir, exist_ok=True)
    results = []
    for number in range(runs):
        path = os.path.join(work_dir, f"{prefix}-{number}.json")
        if not os.path.exists(path):
            commit = report.commit()
            files.write_text(path, json.dumps({**run(number), "commit": commit}, indent=1))
        with open(path) as file:
            results.append(json.load(file))
        print(number, {name: value for name, value in results[-1].items() if name != "log"},
              flush=True)
    return results


def conduct(name: str, description: str, runs: int, run: Callable[[str, int, int], Dict[str, Any]],
            title: str, rows_of: Callable[[List[Dict[str, Any]]], List[Dict[str, str]]],
            is_wrong: Callable[[Dict[str, Any]], bool]) -> None:
    """The command `benchmarks.NAME`, which ends the process with status 1 if a run was wrong.

    Args:
        runs: how many by default.
        run: (work_dir, number, seed) -> the result of a run.
        rows_of: makes the table.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    work_dir = os.path.abspath(args.work_dir)
    results = results_of(work_dir, args.seed, args.runs,
                         lambda number: run(work_dir, number, args.seed))
    report.append(title, rows_of(results), versions=versions(results),
                  command=f"python -m benchmarks.{name} --runs={args.runs} --seed={args.seed}")
    sys.exit(any(map(is_wrong, results)))


def versions(results: Iterable[Dict[str, Any]]) -> Dict[str, str]:
    """TensorFlow's, and the commits at which the results were found, for a table."""
    commits = sorted({result.get("commit", "unknown") for result in results})
    return {"TensorFlow": report.version_of(sys.executable, "tensorflow"),
            "runs at": ", ".join(commits)}


def values_of(output_dir: str) -> Dict[str, np.ndarray]:
    """The variables of the newest checkpoint."""
    reader = tf.train.load_checkpoint(checkpoints.latest(output_dir).path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def difference(output_dir: str, expected: Dict[str, np.ndarray]) -> float:
    """The largest one between the newest checkpoint's values and others.

    Infinite if they have other variables, or values that are no numbers.
    """
    found = values_of(output_dir)
    if sorted(found) != sorted(expected) or any(
            np.isnan(value).any() for values in (found, expected) for value in values.values()
            if value.dtype.kind == "f"):
        return float("inf")
    return max(float(np.max(np.abs(found[name] - value))) for name, value in expected.items())

"""Faults at random moments of runs on one machine: is anything lost?

  python -m benchmarks.faults --work_dir=DIR --runs=12

Each run trains a toy with dropout, evaluates it on the way and at its end, predicts and exports. Until
it ends by itself, it is struck after a random time, again and again:

  kill   SIGKILL, and the same command is started again
  end    SIGTERM, after which it must end with status 143, or of the signal if nothing has begun,
         and is started again
  stop   SIGSTOP, and a second later SIGCONT

Its directory must then hold what that of an undisturbed run holds: the same files, and the same
weights, evaluations, results, predictions and exported weights, bit for bit. (Which of the earlier
checkpoints are kept may differ, as SIGTERM saves one more.) Runs on one and on two replicas take turns.
A run that is measured has a file in DIR; called again, the command goes on with the others. Ends with
status 1 if anything was lost.
"""

import collections
import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

import numpy as np

from benchmarks import campaign, report, toy_task
from engine.disk import files

import tensorflow.compat.v1 as tf

REPLICAS = (1, 2)
EXAMPLES, EPOCHS, BATCH = 48, 150, 4  # of all replicas together
STEPS = EXAMPLES * EPOCHS // BATCH
SAVE_STEPS = 50
STRIKES = ("kill",) * 4 + ("end", "stop")  # as often as they stand here
STOP_SECONDS = 1.0
END_SECONDS = 60.0  # more than a command takes to end after SIGTERM
HANG_SECONDS = 300.0  # more than any process takes
MOST_STARTS = 1000  # of a run, which needs a few dozen
# A command that has not yet loaded TensorFlow ends as any program does after SIGTERM.
ENDED = {None: (0,), "kill": (0, -signal.SIGKILL),
         "end": (0, 128 + signal.SIGTERM, -signal.SIGTERM)}


def command(work_dir: str, output_dir: str, replicas: int) -> List[str]:
    """Trains, evaluates, predicts and exports."""
    task = os.path.join(work_dir, "task")
    os.makedirs(task, exist_ok=True)
    flags = toy_task.write(task, examples=EXAMPLES, length=16, layers=2, hidden=32,
                           vocab_size=200, dropout=0.1)
    shutil.copy(os.path.join(task, "train.tsv"), os.path.join(task, "dev.tsv"))
    with open(os.path.join(task, "test.tsv"), "w") as file:
        file.writelines(["index\tsentence\n", *(f"{row}\tw{row} w1 w2\n" for row in range(20))])
    return [sys.executable, "run_classifier.py", *flags, "--do_eval", "--do_predict", "--do_export",
            f"--output_dir={output_dir}", f"--num_cpu_replicas={replicas}",
            f"--train_batch_size={BATCH // replicas}", f"--num_train_epochs={EPOCHS}",
            "--learning_rate=1e-3", f"--save_checkpoints_steps={SAVE_STEPS}",
            f"--eval_every_steps={4 * SAVE_STEPS}"]


class Run:
    """A command that is started until it ends by itself.

    Attributes:
        strikes: how often it was struck, by kind.
        wrong: what should not have happened, a line each.
        seconds: that its processes ran, without those in which they were stopped.
    """

    def __init__(self, words: List[str], log_path: str):
        self.strikes: Dict[str, int] = collections.Counter()
        self.wrong: List[str] = []
        self.seconds = 0.0
        self._words = words
        self._log_path = log_path

    def go(self, generator: random.Random, longest: float) -> None:
        """Starts it, and strikes after up to `longest` seconds, until it has ended by itself."""
        for _ in range(MOST_STARTS):
            if self._attempt(generator, longest) or self.wrong:
                return
        self.wrong.append(f"it has not ended after {MOST_STARTS} starts")

    def go_undisturbed(self) -> float:
        """Runs it to its end; returns the seconds until the first step's line."""
        start, first = time.time(), None
        with self._start() as process:
            while process.poll() is None:
                if first is None and "\nstep 1/" in self.log():
                    first = time.time() - start
                time.sleep(0.02)
        self.seconds = time.time() - start
        if process.returncode or first is None:
            sys.exit(self.log())
        return first

    def log(self) -> str:
        """What its processes have said."""
        with open(self._log_path) as log:
            return log.read()

    def _start(self) -> subprocess.Popen:
        with open(self._log_path, "a") as log:
            return subprocess.Popen(self._words, cwd=report.ROOT, stderr=log,
                                    env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})

    def _attempt(self, generator: random.Random, longest: float) -> bool:
        """One process; whether it has ended by itself."""
        start = time.time()
        with self._start() as process:
            while self._ends_in(process, generator.random() * longest) is None:
                kind = generator.choice(STRIKES)
                self.strikes[kind] += 1
                if kind != "stop":
                    break
                process.send_signal(signal.SIGSTOP)
                time.sleep(STOP_SECONDS)
                process.send_signal(signal.SIGCONT)
                start += STOP_SECONDS
            else:
                kind = None
            status = process.returncode if kind is None else self._struck(process, kind)
            self.seconds += time.time() - start
        if time.time() - start > HANG_SECONDS:
            self.wrong.append("it hung")
        elif status not in ENDED[kind]:
            self.wrong.append(f"it ended with status {status} after {kind or 'no strike'}")
        return status == 0

    def _struck(self, process: subprocess.Popen, kind: str) -> Optional[int]:
        """Ends a process; its status, which is 0 if it was faster."""
        process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        status = self._ends_in(process, END_SECONDS)
        if status is None:
            process.kill()
        return status

    def _ends_in(self, process: subprocess.Popen, seconds: float) -> Optional[int]:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def differences(output_dir: str, expected_dir: str) -> List[str]:
    """The files of a run that are not as another run's."""
    names, expected_names = map(_names, (output_dir, expected_dir))
    if names != expected_names:
        return sorted(names ^ expected_names)
    compared = [name for name in sorted(names)
                if name.endswith(("results.txt", "predict.txt", "results.tsv", "evaluations.json"))]
    differing = [name for name in compared if not filecmp.cmp(
        os.path.join(output_dir, name), os.path.join(expected_dir, name), shallow=False)]
    if campaign.difference(output_dir, campaign.values_of(expected_dir)):
        differing.append("the newest checkpoint's values")
    exported, expected_export = (tf.train.load_checkpoint(
        os.path.join(folder, "export", "variables", "variables"))
        for folder in (output_dir, expected_dir))
    differing += [f"exported {name}" for name in expected_export.get_variable_to_shape_map()
                  if not np.array_equal(exported.get_tensor(name), expected_export.get_tensor(name))]
    return differing


def _names(folder: str) -> set:
    """Paths of all files below a folder but checkpoints and curves, whose names may differ."""
    return {os.path.relpath(os.path.join(parent, name), folder)
            for parent, _, names in os.walk(folder) for name in names
            if "tfevents" not in name and not name.startswith("model.ckpt-")}


def train_undisturbed(work_dir: str, replicas: int) -> Dict[str, float]:
    """Runs it in DIR/expected-REPLICAS, once; returns the seconds of all and until step 1."""
    output_dir = os.path.join(work_dir, f"expected-{replicas}")
    path = f"{output_dir}.json"
    if not os.path.exists(path):
        shutil.rmtree(output_dir, ignore_errors=True)
        with tempfile.NamedTemporaryFile() as log:
            run = Run(command(work_dir, output_dir, replicas), log.name)
            run.go_undisturbed()  # also makes the store
            shutil.rmtree(output_dir)
            os.truncate(log.name, 0)
            first = run.go_undisturbed()
        files.write_text(path, json.dumps({"all": run.seconds, "first step": first}))
    with open(path) as file:
        return json.load(file)


def strike_until_done(work_dir: str, number: int, seed: int) -> Dict[str, Any]:
    """One run, and how it ended."""
    replicas = REPLICAS[number % len(REPLICAS)]
    seconds = train_undisturbed(work_dir, replicas)
    with tempfile.TemporaryDirectory(dir=work_dir) as folder:
        output_dir = os.path.join(folder, "out")
        run = Run(command(work_dir, output_dir, replicas), os.path.join(folder, "log"))
        # So that some strikes come before the first step, and others long after it.
        run.go(random.Random(f"{seed}-{number}"), 2 * seconds["first step"])
        wrong = run.wrong or differences(
            output_dir, os.path.join(work_dir, f"expected-{replicas}"))
        if "Traceback" in run.log():
            wrong.append("a traceback")
        interval = (seconds["all"] - seconds["first step"]) * SAVE_STEPS / STEPS
        return {"replicas": replicas, **{kind: run.strikes[kind] for kind in set(STRIKES)},
                "wrong": wrong, "lost": run.seconds - seconds["all"],
                "expected": interval / 2 + seconds["first step"],
                **({"log": run.log()} if wrong else {})}


def row(replicas: int, results: List[Dict[str, Any]]) -> Dict[str, str]:
    count = {kind: sum(result[kind] for result in results) for kind in set(STRIKES)}
    restarts = count["kill"] + count["end"]
    return {"replicas": str(replicas), "runs": str(len(results)), "SIGKILL": str(count["kill"]),
            "SIGTERM": str(count["end"]), "SIGSTOP": str(count["stop"]),
            "runs with losses": str(sum(bool(result["wrong"]) for result in results)),
            "lost for a restart, s": f"{sum(r['lost'] for r in results) / max(restarts, 1):.1f}",
            "half an interval + start, s": f"{np.mean([r['expected'] for r in results]):.1f}"}


def rows(results: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    return [row(replicas, [result for result in results if result["replicas"] == replicas])
            for replicas in REPLICAS]


if __name__ == "__main__":
    campaign.conduct(
        "faults", __doc__, 12, strike_until_done,
        f"Faults at random moments, a checkpoint every {SAVE_STEPS} of {STEPS} steps", rows,
        lambda result: bool(result["wrong"]))

"""Several processes beside one with as many replicas: start-up, step time, bytes on the network.

  python -m benchmarks.machines

12 layers with hidden size 64, batch 4 x 32 on each replica, on the CPU. The processes run on hosts
of their own (`benchmarks/hosts.py`), started by `engine.launch`; what leaves a host in a step is
counted at its link, and stands beside the formulas of `benchmarks/scaling.py`. Needs Linux and root.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Sequence

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

import numpy as np

from benchmarks import hosts, report, scaling, toy_task

SHAPE = scaling.Shape("toy", 12, 64)
BATCH, LENGTH = 4, 32
STEPS = 60


class Measured(NamedTuple):
    """One training. Rates are over all steps but the first."""
    startup_seconds: float  # to the end of step 1
    step_seconds: float
    sent_bytes: float  # of a host in a step, the mean over the hosts


def train(command: Sequence[str], environment: Dict[str, str],
          sent_bytes: Callable[[], float]) -> Measured:
    """Runs a training to its end and looks at the clock and the counters as it says its steps."""
    start = time.time()
    process = subprocess.Popen(command, cwd=report.ROOT, stderr=subprocess.PIPE,
                               universal_newlines=True, env={**os.environ, **environment})
    log, seen = [], {}
    for line in process.stderr:
        log.append(line)
        for step in (1, STEPS):
            if line.startswith(f"step {step}/"):
                seen[step] = (time.time(), sent_bytes())
    if process.wait():
        sys.exit("".join(log))
    (first_time, first_bytes), (last_time, last_bytes) = seen[1], seen[STEPS]
    return Measured(first_time - start, (last_time - first_time) / (STEPS - 1),
                    (last_bytes - first_bytes) / (STEPS - 1))


def in_one_process(flags: Sequence[str], replicas: int) -> Measured:
    command = [sys.executable, "run_classifier.py", f"--num_cpu_replicas={replicas}", *flags]
    return train(command, {}, lambda: 0)


def on_hosts(flags: Sequence[str], processes: int, directory: str) -> Measured:
    with hosts.Network(processes) as network:
        path = network.install_ssh(os.path.join(directory, "bin"))
        names = ",".join(host.address for host in network.hosts)
        return train(
            [*network.hosts[0].enter, sys.executable, "-m", "engine.launch", f"--hosts={names}",
             "--", "run_classifier.py", "--num_cpu_replicas=1", *flags],
            {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
            lambda: np.mean([network.sent_bytes(host) for host in network.hosts]))


def formula_bytes(processes: int) -> float:
    """What a worker sends in a step: its share of a ring, and its rows to all others."""
    moved = scaling.traffic(SHAPE, batch=BATCH, length=LENGTH)
    return 2 * (processes - 1) / processes * moved.dense + (processes - 1) * moved.rows


def row(replicas: int, alone: List[Measured], together: List[Measured]) -> Dict[str, str]:
    """A row of the table: medians, and ratios of runs made one after the other."""
    sent, formula = np.median([run.sent_bytes for run in together]), formula_bytes(replicas)
    cells = {"replicas": str(replicas)}
    for name, field in (("start-up", "startup_seconds"), ("step", "step_seconds")):
        one, several = ([getattr(run, field) for run in runs] for runs in (alone, together))
        cells[f"{name}, one process"] = f"{np.median(one):.2f} s"
        cells[f"{name}, a process each"] = f"{np.median(several):.2f} s"
        cells[f"{name}, ratio"] = report.ratios(several, one)
    return {**cells, "a host sends in a step": f"{sent / 1e6:.3f} MB",
            "the formula": f"{formula / 1e6:.3f} MB ({sent / max(formula, 1) - 1:+.1%})"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", default="1,2,4")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    reason = hosts.why_not()
    if reason:
        sys.exit(reason)
    rows = []
    for replicas in map(int, args.replicas.split(",")):
        alone, together = [], []
        for _ in range(args.pairs):
            with tempfile.TemporaryDirectory() as directory:
                flags = toy_task.write(
                    directory, examples=STEPS * replicas * BATCH, length=LENGTH,
                    layers=SHAPE.layers, hidden=SHAPE.hidden, vocab_size=SHAPE.vocab_size,
                    dropout=0.1) + [f"--train_batch_size={BATCH}", "--num_train_epochs=1"]
                alone.append(in_one_process([*flags, f"--output_dir={directory}/1"], replicas))
                together.append(
                    on_hosts([*flags, f"--output_dir={directory}/2"], replicas, directory))
            print(alone[-1], together[-1], flush=True)
        rows.append(row(replicas, alone, together))
    report.append(
        "Several processes, each on a host of its own, beside one with as many replicas (median)",
        rows, command="python -m benchmarks.machines",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""Predictions on the cores of this machine: one process beside Ray's actors, in turn.

  RAY_worker_niceness=0 python -m benchmarks.ray_overhead --model=OUTPUT_DIR --input_file=texts.txt \\
    --name="SST-2"

All have the same cores: the process all of them, each actor one place. A rate is the difference of two
commands, for the texts twice and once: start-up drops out. Beside it is the peak memory of the command
that waits for the actors.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import List, Tuple

import numpy as np

from benchmarks import report

PARTS = 20  # for each time that the input has the texts


def run(arguments: List[str]) -> Tuple[float, int]:
    """Seconds that the command takes, and the peak memory of its process, in MB."""
    start = time.time()
    process = subprocess.Popen([sys.executable, "-m", "runs.predict", "--num_gpus=0", *arguments],
                               cwd=report.ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the command ended with {status}")
    return time.time() - start, usage.ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "input_file"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--name", required=True, help="of the texts, for the table")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    with open(args.input_file, encoding="utf-8") as file:
        texts = file.read()
    count, rates, memory = texts.count("\n"), {"process": [], "ray": []}, {1: 0, 2: 0}
    with tempfile.TemporaryDirectory() as folder:
        for times in memory:
            with open(f"{folder}/{times}.txt", "w", encoding="utf-8") as file:
                file.write(texts * times)
        for pair in range(args.pairs):
            for who, found in rates.items():
                seconds = {}
                for times in memory:
                    flags = [f"--output_dir={args.model}", f"--input_file={folder}/{times}.txt",
                             "--header=false", f"--output_file={folder}/{who}-{pair}-{times}.jsonl"]
                    if who == "ray":
                        flags += ["--ray_address=local", f"--shards={PARTS * times}"]
                    seconds[times], peak = run(flags)
                    if who == "ray":
                        memory[times] = max(memory[times], peak)
                found.append(count / (seconds[2] - seconds[1]))
                print(f"{who}: {found[-1]:.1f} texts/s", flush=True)
    report.append(
        f"Ray: {count:,} texts of {args.name} in {PARTS} parts, texts/s (median)",
        [{"one process": f"{np.median(rates['process']):.1f}", "Ray's actors": f"{np.median(rates['ray']):.1f}",
          "actors / process": report.ratios(rates["ray"], rates["process"]),
          "memory of the command with the texts once, twice": f"{memory[1]:,} MB, {memory[2]:,} MB"}],
        command=f"python -m benchmarks.ray_overhead --name='{args.name}' --pairs={args.pairs}",
        versions={name: report.version_of(sys.executable, name) for name in ("tensorflow", "ray")})


if __name__ == "__main__":
    main()

"""Is this version as fast as an earlier one? Trainings of both, in turn, on one replica on the CPU.

  git worktree add ../before COMMIT
  python -m benchmarks.two_versions --before=../before --model=MINILM_TF --data=SHARED_DATA

Examples/s of fine-tuning on CoLA and with all 128 tokens full, of pretraining, of distillation and of a small
model with --xla, and that model's seconds to the end of step 1, compilation included (xla-seconds). Each
version trains by its own commands on the same files.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from typing import Callable, Dict, List

import numpy as np

from benchmarks import (
    distillation_throughput as distillation, pretraining_throughput as pretraining, report, startup,
    toy_task, training_throughput as training)

Measure = Callable[[], float]


def fine_tuning(name: str, args, folder: str) -> Measure:
    data_dir = os.path.join(folder, "data")
    training.write_cola_layout(training.examples_of(name, args.data), data_dir)
    model = training.prepare_model(name, args.model, args.data, os.path.join(folder, "model"))
    return lambda: training.our_rate(model, data_dir, training.OUR_STEPS[name])


def pretrained(args, folder: str) -> Measure:
    examples, config = pretraining.write_examples(args.data, folder), pretraining.write_config(args.model, folder)
    return lambda: pretraining.our_rate(examples, config)


def distilled(args, folder: str) -> Measure:
    data_dir = os.path.join(folder, "data")
    training.write_cola_layout(training.examples_of("sst2", args.data), data_dir)
    model = training.prepare_model("sst2", args.model, args.data, os.path.join(folder, "model"))
    teacher = distillation.make_teacher(model, data_dir, os.path.join(folder, "teacher"))
    return lambda: distillation.our_rate(teacher, data_dir)


def _xla_flags(folder: str) -> List[str]:
    return [*toy_task.write(folder, examples=3200, length=64, layers=4, hidden=128, vocab_size=1000,
                            dropout=0.1), "--xla", "--num_cpu_replicas=1"]


def compiled(args, folder: str) -> Measure:
    flags = _xla_flags(folder)

    def rate() -> float:
        with tempfile.TemporaryDirectory() as output_dir:
            answer = subprocess.run(
                [sys.executable, "run_classifier.py", *flags, f"--output_dir={output_dir}",
                 "--num_train_epochs=1"], cwd=report.ROOT, stderr=subprocess.PIPE,
                universal_newlines=True, check=True)
        return float(re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1].replace(",", ""))
    return rate


def compilation(args, folder: str) -> Measure:
    flags = _xla_flags(folder)
    return lambda: startup.our_seconds(flags)


CASES: Dict[str, Callable[..., Measure]] = {
    "cola": lambda *given: fine_tuning("cola", *given),
    "full": lambda *given: fine_tuning("full", *given),
    "pretraining": pretrained,
    "distillation": distilled,
    "xla": compiled,
    "xla-seconds": compilation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("before", "model", "data"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    now, rows = report.ROOT, []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(args.only):
            found: Dict[str, List[float]] = {args.before: [], now: []}
            measures = {}
            for report.ROOT in found:  # where the commands run
                place = os.path.join(folder, f"{number}-{len(measures)}")
                os.makedirs(place)
                measures[report.ROOT] = CASES[name](args, place)
            for _ in range(args.pairs):
                for report.ROOT, measure in measures.items():
                    found[report.ROOT].append(measure())
            report.ROOT = now
            rows.append({"training": name, "before": f"{np.median(found[args.before]):.1f}",
                         "now": f"{np.median(found[now]):.1f}",
                         "now / before": report.ratios(found[now], found[args.before])})
            print(rows[-1], flush=True)
    report.append(
        "Two versions, one replica: medians of examples/s, or of seconds", rows,
        command=f"python -m benchmarks.two_versions --before={os.path.basename(args.before)}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

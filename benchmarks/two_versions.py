"""Is this version as fast as an earlier one? Trainings of both, in turn, on one replica on the CPU.

  git worktree add ../before COMMIT
  python -m benchmarks.two_versions --before=../before --model=MINILM_TF --data=SHARED_DATA

Examples/s of fine-tuning on CoLA and with all 128 tokens full, of pretraining, of distillation and of a small
model with --xla, and that model's seconds to the end of step 1, compilation included (xla-seconds). Each
version trains by its own commands on the same files.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from typing import Callable, Dict, Iterator, List, Tuple

import numpy as np

from benchmarks import (
    distillation_throughput as distillation, pretraining_throughput as pretraining, report, startup,
    toy_task, training_throughput as training)

Measure = Callable[[], float]


@contextlib.contextmanager
def commands_of(tree: str) -> Iterator[None]:
    """The other benchmarks run the commands of this version."""
    own, report.ROOT = report.ROOT, tree
    try:
        yield
    finally:
        report.ROOT = own


def _prepared(name: str, args, folder: str) -> Tuple[str, str]:
    """The folders of a model and of a set."""
    data_dir = os.path.join(folder, "data")
    training.write_cola_layout(training.examples_of(name, args.data), data_dir)
    return training.prepare_model(name, args.model, args.data, os.path.join(folder, "model")), data_dir


def fine_tuning(name: str, args, folder: str) -> Measure:
    model, data_dir = _prepared(name, args, folder)
    return lambda: training.our_rate(model, data_dir, training.OUR_STEPS[name])


def pretrained(args, folder: str) -> Measure:
    examples, config = pretraining.write_examples(args.data, folder), pretraining.write_config(args.model, folder)
    return lambda: pretraining.our_rate(examples, config)


def distilled(args, folder: str) -> Measure:
    model, data_dir = _prepared("sst2", args, folder)
    teacher = distillation.make_teacher(model, data_dir, os.path.join(folder, "teacher"))
    return lambda: distillation.our_rate(teacher, data_dir)


def compiled(args, folder: str) -> Measure:
    _write_toy(folder)
    return lambda: training.our_rate(folder, folder, 100, more=["--xla"])


def compilation(args, folder: str) -> Measure:
    flags = [*_write_toy(folder), "--xla", "--num_cpu_replicas=1"]
    return lambda: startup.our_seconds(flags)


def _write_toy(folder: str) -> List[str]:
    return toy_task.write(folder, examples=32 * 130, length=64, layers=4, hidden=128, vocab_size=1000, dropout=0.1)


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
    trees, rows = {"before": args.before, "now": report.ROOT}, []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            measures: Dict[str, Measure] = {}
            found: Dict[str, List[float]] = {version: [] for version in trees}
            for version, tree in trees.items():
                place = os.path.join(folder, f"{name}-{version}")
                os.makedirs(place)
                with commands_of(tree):
                    measures[version] = CASES[name](args, place)
            for _ in range(args.pairs):
                for version, tree in trees.items():
                    with commands_of(tree):
                        found[version].append(measures[version]())
            rows.append({"training": name, **{version: f"{np.median(found[version]):.1f}" for version in trees},
                         "now / before": report.ratios(found["now"], found["before"])})
            print(rows[-1], flush=True)
    report.append(
        "Two versions, one replica: medians of examples/s, or of seconds", rows,
        command=f"python -m benchmarks.two_versions --before={os.path.basename(args.before)}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""What benchmarks share that compare F1 and speed of ours and of Hugging Face's recipe, three seeds."""

import argparse
import os
import sys
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from benchmarks import report
from benchmarks.agreement import SEEDS, remembered

Result = Dict[str, Any]  # "f1", "rate" in examples per second, and what else a benchmark needs
PATHS = ("model", "huggingface_model", "train_file", "dev_file", "work_dir")
# Google's Adam, which ours is, does not correct the moments' bias: its first hundreds of steps are larger.
PEERS = {"adamw": "Hugging Face", "google": "Hugging Face, with Google's Adam"}


def parser_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    for name in (*PATHS, "huggingface_python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--optimizers", nargs="+", choices=list(PEERS), default=list(PEERS),
                        help="of the peer")
    return parser


def rates_of(results: List[Result]) -> List[float]:
    return [result["rate"] for result in results]


def compare(benchmark: str, title: str, args: argparse.Namespace,
            run_ours: Callable[[argparse.Namespace, int, str], Result],
            run_theirs: Callable[[argparse.Namespace, int, Result, str], Result], examples: str,
            baseline: Optional[Dict[str, str]] = None) -> None:
    """Trains in turn and appends the table; what has ended in the work directory is not repeated.

    Args:
        benchmark: its name, and the flags of its own.
        run_ours: (args, seed, output directory).
        run_theirs: (args, seed, our result, optimizer).
        examples: what the rate counts, "sentences" for example.
        baseline: the row of what has learned nothing: its name as "training", its "F1".
    """
    for name in PATHS:
        setattr(args, name, os.path.abspath(getattr(args, name)))
    os.makedirs(args.work_dir, exist_ok=True)

    def path(name: str) -> str:
        return os.path.join(args.work_dir, name)

    ours: List[Result] = []
    theirs: Dict[str, List[Result]] = {optimizer: [] for optimizer in args.optimizers}
    for seed in SEEDS:
        ours.append(remembered(path(f"ours-{seed}.json"),
                               lambda: run_ours(args, seed, path(f"ours-{seed}"))))
        print(f"ours {ours[-1]}", flush=True)
        for optimizer, results in theirs.items():
            results.append(remembered(path(f"huggingface-{optimizer}-{seed}.json"),
                                      lambda: run_theirs(args, seed, ours[-1], optimizer)))
            print(f"{PEERS[optimizer]} {results[-1]}", flush=True)
    rows = [{"training": name, "F1": report.mean_and_deviation([result["f1"] for result in results]),
             "each seed": ", ".join(f"{result['f1']:.3f}" for result in results),
             f"{examples}/s (median)": f"{np.median(rates_of(results)):.1f}",
             "ours / theirs": "" if results is ours else report.ratios(rates_of(ours), rates_of(results))}
            for name, results in [("ours", ours), *((PEERS[optimizer], results)
                                                    for optimizer, results in theirs.items())]]
    if baseline:
        rows.append({**dict.fromkeys(rows[0], ""), **baseline})
    report.append(
        f"{title}, {os.path.basename(args.train_file)}, dev set after {args.epochs:g} epochs, MiniLM "
        "encoder, three seeds (mean ± deviation)",
        rows, command=f"python -m benchmarks.{benchmark} --epochs={args.epochs:g} "
                      f"--learning_rate={args.learning_rate:g} --optimizers {' '.join(args.optimizers)}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                  "PyTorch": report.version_of(args.huggingface_python, "torch"),
                  "transformers": report.version_of(args.huggingface_python, "transformers")})

"""Tagging: F1 by entity and sentences/s of ours and of Hugging Face's recipe, three seeds, in turn.

  python -m benchmarks.tagging_quality --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --huggingface_python=PYTHON --train_file=train.txt --dev_file=dev.txt --work_dir=DIR

The same sentences, weights, batch of 16, epochs, learning rate and schedule. A training that has ended
in the work directory is not repeated, so that this can be interrupted.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from typing import Dict

import numpy as np

from benchmarks import report
from benchmarks.agreement import SEEDS, remembered

BATCH_SIZE = 16


def run_ours(args, seed: int, output_dir: str) -> Dict[str, float]:
    answer = subprocess.run(
        [sys.executable, "-m", "tagging.run", "--do_train", "--do_eval",
         f"--train_file={args.train_file}", f"--dev_file={args.dev_file}",
         f"--init_checkpoint={args.model}", f"--output_dir={output_dir}", f"--seed={seed}",
         f"--learning_rate={args.learning_rate}", f"--num_train_epochs={args.epochs}",
         f"--train_batch_size={BATCH_SIZE}", "--num_cpu_replicas=1",
         f"--store_dir={args.work_dir}/store"],
        cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    with open(os.path.join(output_dir, "eval_results.json")) as file:
        f1 = json.load(file)["eval_f1"]
    rate = re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1]
    return {"f1": f1, "sentences_per_second": float(rate.replace(",", ""))}


def run_huggingface(args, seed: int) -> Dict[str, float]:
    answer = subprocess.run(
        [args.huggingface_python, "-m", "benchmarks.peers.huggingface_ner",
         f"--model_dir={args.huggingface_model}", f"--train_file={args.train_file}",
         f"--dev_file={args.dev_file}", f"--seed={seed}", f"--epochs={args.epochs}",
         f"--learning_rate={args.learning_rate}", f"--batch_size={BATCH_SIZE}"],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "huggingface_model", "huggingface_python", "train_file", "dev_file",
                 "work_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--learning_rate", type=float, default=2e-4)
    args = parser.parse_args()
    for name in ("model", "huggingface_model", "train_file", "dev_file", "work_dir"):
        setattr(args, name, os.path.abspath(getattr(args, name)))
    os.makedirs(args.work_dir, exist_ok=True)

    def path(name):
        return os.path.join(args.work_dir, name)

    ours, theirs = [], []
    for seed in SEEDS:
        ours.append(remembered(path(f"ours-{seed}.json"),
                               lambda: run_ours(args, seed, path(f"ours-{seed}"))))
        theirs.append(remembered(path(f"huggingface-{seed}.json"),
                                 lambda: run_huggingface(args, seed)))
        print(f"ours {ours[-1]}, Hugging Face {theirs[-1]}", flush=True)
    rates = [[result["sentences_per_second"] for result in results] for results in (ours, theirs)]
    rows = [{"training": name, "F1": report.mean_and_deviation([result["f1"] for result in results]),
             "each seed": ", ".join(f"{result['f1']:.3f}" for result in results),
             "sentences/s (median)": f"{np.median(rate):.1f}", "ours / theirs": ratio}
            for name, results, rate, ratio in (
                ("ours", ours, rates[0], report.ratios(*rates)),
                ("Hugging Face", theirs, rates[1], ""))]
    report.append(
        f"Tagging, {os.path.basename(args.train_file)}, dev set after {args.epochs:g} epochs, MiniLM "
        "encoder, three seeds (mean ± deviation)",
        rows, command=f"python -m benchmarks.tagging_quality --epochs={args.epochs:g} "
                      f"--learning_rate={args.learning_rate:g}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                  "PyTorch": report.version_of(args.huggingface_python, "torch"),
                  "transformers": report.version_of(args.huggingface_python, "transformers")})


if __name__ == "__main__":
    main()

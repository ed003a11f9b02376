"""Reading comprehension: F1 and windows/s of ours and of Hugging Face's run_qa recipe, three seeds.

  python -m benchmarks.reading_quality --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --huggingface_python=PYTHON --train_file=train.json --dev_file=dev.json --work_dir=DIR

In turn, with the same questions (32 tokens at most), weights, batch of 16, steps, learning rate and
schedule, and windows of 192 tokens that advance by about 96. The answers of both are scored as the
official scripts do. A training that has ended in the work directory is not repeated, so that this can
be interrupted.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from typing import Dict

import numpy as np

from benchmarks import report, three_seeds
from reading import scores
from runs import squad_files

BATCH_SIZE = 16
LENGTH, ADVANCE, OVERLAP = 192, 96, 80  # tokens; the overlap that leaves about that advance


def run_ours(args: argparse.Namespace, seed: int, output_dir: str) -> three_seeds.Result:
    answer = subprocess.run(
        [sys.executable, "run_squad.py", "--do_train", "--do_predict",
         f"--train_file={args.train_file}", f"--predict_file={args.dev_file}",
         f"--init_checkpoint={args.model}", f"--output_dir={output_dir}", f"--seed={seed}",
         f"--learning_rate={args.learning_rate}", f"--num_train_epochs={args.epochs}",
         f"--train_batch_size={BATCH_SIZE}", f"--max_seq_length={LENGTH}", f"--doc_stride={ADVANCE}",
         "--max_query_length=32", "--num_cpu_replicas=1", f"--store_dir={args.work_dir}/store",
         f"--version_2_with_negative={str(args.version_2_with_negative).lower()}"],
        cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    rate = re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1]
    steps = re.findall(r"\bstep (\d[\d,]*)/", answer.stderr)[-1]
    return {"f1": f1_of(args, os.path.join(output_dir, "predictions.json")),
            "rate": float(rate.replace(",", "")), "steps": int(steps.replace(",", ""))}


def run_huggingface(args: argparse.Namespace, seed: int, ours: three_seeds.Result, optimizer: str
                    ) -> three_seeds.Result:
    predictions = os.path.join(args.work_dir, f"huggingface-{optimizer}-{seed}-predictions.json")
    answer = subprocess.run(
        [args.huggingface_python, "-m", "benchmarks.peers.huggingface_qa",
         f"--model_dir={args.huggingface_model}", f"--train_file={args.train_file}",
         f"--dev_file={args.dev_file}", f"--seed={seed}", f"--num_steps={ours['steps']}",
         f"--learning_rate={args.learning_rate}", f"--optimizer={optimizer}",
         f"--batch_size={BATCH_SIZE}",
         f"--max_seq_length={LENGTH}", f"--doc_stride={OVERLAP}", f"--output_file={predictions}",
         *(["--version_2_with_negative"] if args.version_2_with_negative else [])],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return {"f1": f1_of(args, predictions), **json.loads(answer.stdout.splitlines()[-1])}


def f1_of(args: argparse.Namespace, predictions_file: str) -> float:
    with open(predictions_file, encoding="utf-8") as file:
        return mean_f1(args, json.load(file))


def mean_f1(args: argparse.Namespace, predictions: Dict[str, str]) -> float:
    """Of the predictions for all questions of the dev set, by their ids; "" where there is none."""
    measure = scores.squad_2 if args.version_2_with_negative else scores.squad
    return float(np.mean([measure(predictions.get(question.id, ""),
                                  [answer.text for answer in question.answers]).f1
                          for paragraph in squad_files.paragraphs(args.dev_file)
                          for question in paragraph.questions]))


def main() -> None:
    parser = three_seeds.parser_of(__doc__)
    parser.add_argument("--version_2_with_negative", action="store_true")
    args = parser.parse_args()
    own = " --version_2_with_negative" * args.version_2_with_negative
    three_seeds.compare(f"reading_quality{own}", "Reading comprehension", args, run_ours, run_huggingface,
                        "windows", {"training": "answering nothing", "F1": f"{mean_f1(args, {}):.3f}"})


if __name__ == "__main__":
    main()

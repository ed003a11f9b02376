"""Tagging: F1 by entity and sentences/s of ours and of Hugging Face's recipe, three seeds, in turn.

  python -m benchmarks.tagging_quality --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --huggingface_python=PYTHON --train_file=train.txt --dev_file=dev.txt --work_dir=DIR

The same sentences, weights, batch of 16, steps, learning rate and schedule, for CoNLL's columns or
CLUENER's lines. A training that has ended in the work directory is not repeated, so that this can be
interrupted.
"""

import argparse
import json
import os
import re
import subprocess
import sys

from benchmarks import report, three_seeds

BATCH_SIZE = 16


def run_ours(args: argparse.Namespace, seed: int, output_dir: str) -> three_seeds.Result:
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
    return {"f1": f1, "rate": float(rate.replace(",", ""))}


def run_huggingface(args: argparse.Namespace, seed: int, _, optimizer: str) -> three_seeds.Result:
    answer = subprocess.run(
        [args.huggingface_python, "-m", "benchmarks.peers.huggingface_ner",
         f"--model_dir={args.huggingface_model}", f"--train_file={args.train_file}",
         f"--dev_file={args.dev_file}", f"--seed={seed}", f"--epochs={args.epochs}",
         f"--learning_rate={args.learning_rate}", f"--optimizer={optimizer}",
         f"--batch_size={BATCH_SIZE}"],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    three_seeds.compare("tagging_quality", "Tagging", three_seeds.parser_of(__doc__).parse_args(),
                        run_ours, run_huggingface, "sentences",
                        {"training": "tagging nothing", "F1": "0"})


if __name__ == "__main__":
    main()

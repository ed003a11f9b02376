"""Pretraining throughput, examples/s: ours and Google's run_pretraining, in turn, in one run.

  python -m benchmarks.pretraining_throughput --model=MINILM_TF --data=SHARED_DATA

The MiniLM shape with random weights, both objectives, batch 32, max_seq_length 128 with
all examples full but for what a sentence's end leaves, 20 masked tokens at most, one
replica. Both read the same TFRecord file. TensorFlow 1.15, `bert-tensorflow==1.0.1`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks import report

SIZES = ["--max_seq_length=128", "--max_predictions_per_seq=20"]
OUR_STEPS = 10


def write_examples(data: str, directory: str) -> str:
    path = os.path.join(directory, "books.tfrecord")
    subprocess.run(
        [sys.executable, "-m", "pretraining.create_data", *SIZES,
         f"--input_file={data}/pretrain/en_books.txt", f"--output_file={path}",
         f"--vocab_file={data}/vocab/uncased_en/vocab.txt", "--dupe_factor=1",
         "--short_seq_prob=0"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL, check=True)
    return path


def write_config(model: str, directory: str) -> str:
    """The model's shape as Google's code takes it: the tanh form of gelu."""
    with open(os.path.join(model, "bert_config.json")) as file:
        config = {**json.load(file), "hidden_act": "gelu"}
    path = os.path.join(directory, "bert_config.json")
    with open(path, "w") as file:
        json.dump(config, file)
    return path


def our_rate(examples: str, config: str) -> float:
    with tempfile.TemporaryDirectory() as output_dir:
        answer = subprocess.run(
            [sys.executable, "-m", "pretraining.run", *SIZES, f"--input_file={examples}",
             f"--bert_config_file={config}", f"--output_dir={output_dir}", "--do_train",
             f"--num_train_steps={OUR_STEPS}", "--num_warmup_steps=1", "--num_cpu_replicas=1"],
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    return float(re.findall(r"([\d,.]+) examples/s,", answer.stderr)[-1].replace(",", ""))


def googles_rate(examples: str, config: str) -> float:
    with tempfile.TemporaryDirectory() as work_dir:
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.google_pretraining",
             f"--input_file={examples}", f"--config={config}", f"--work_dir={work_dir}"],
            cwd=report.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            universal_newlines=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])["rate"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    ours, googles = [], []
    with tempfile.TemporaryDirectory() as directory:
        examples = write_examples(args.data, directory)
        config = write_config(args.model, directory)
        for _ in range(args.pairs):
            googles.append(googles_rate(examples, config))
            ours.append(our_rate(examples, config))
            print(f"ours {ours[-1]:.1f}, Google's {googles[-1]:.1f} examples/s", flush=True)
    report.append(
        "Pretraining throughput, full length, 1 × 32, against Google's run_pretraining: "
        "examples/s (median)",
        [{"ours": f"{np.median(ours):.1f}", "Google's": f"{np.median(googles):.1f}",
          "ours / Google's": report.ratios(ours, googles)}],
        command="python -m benchmarks.pretraining_throughput",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""Reading comprehension, ours and Google's run_squad, in turn, in one run (TensorFlow 1.15).

  python -m benchmarks.reading_throughput --model=MINILM_TF --train_file=squad2_train.json

Preparing: questions/s from the JSON file to windows of 384 tokens that are ready to train on. Training:
windows/s at a batch of 12, ours with windows padded to the longest of their batch, which is the
default, and all to 384 tokens, as Google's.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import List, Tuple

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from benchmarks.training_throughput import answer_of, prepare_model
from encoder.encoding import load_encoding
from reading import data
from reading.data import QuestionSet, WindowSettings

LENGTH, BATCH_SIZE, STEPS = 384, 12, 25


def load(args, store_dir: str) -> QuestionSet:
    encoding = load_encoding(f"{args.model}/vocab.txt", do_lower_case=True, max_seq_length=LENGTH,
                             vocab_size=30522)
    return data.load(args.train_file, encoding, WindowSettings(version_2_with_negative=True),
                     store_dir, is_training=True)


def our_preparation(args) -> float:
    """Questions per second, without the import of modules."""
    with tempfile.TemporaryDirectory() as store_dir:
        start = time.time()
        return len(load(args, store_dir).records) / (time.time() - start)


def our_training(args, model: str, store_dir: str, num_windows: int, *,
                 dynamic_padding: bool) -> float:
    with tempfile.TemporaryDirectory() as output_dir:
        answer = subprocess.run(
            [sys.executable, "run_squad.py", "--do_train", f"--train_file={args.train_file}",
             "--version_2_with_negative", f"--vocab_file={model}/vocab.txt",
             f"--bert_config_file={model}/bert_config.json",
             f"--init_checkpoint={model}/bert_model.ckpt", f"--output_dir={output_dir}",
             f"--store_dir={store_dir}", f"--max_seq_length={LENGTH}", "--num_cpu_replicas=1",
             f"--train_batch_size={BATCH_SIZE}", f"--dynamic_padding={str(dynamic_padding).lower()}",
             f"--num_train_epochs={(STEPS + 0.5) * BATCH_SIZE / num_windows}"],
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    return float(re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1].replace(",", ""))


def googles(args, model: str, measure: str) -> float:
    with tempfile.TemporaryDirectory() as work_dir:
        return answer_of(
            sys.executable, "google_squad", f"--train_file={args.train_file}", f"--model={model}",
            f"--work_dir={work_dir}", f"--measure={measure}", f"--batch_size={BATCH_SIZE}",
            "--version_2_with_negative")["rate"]


def with_one_answer(path: str, folder: str) -> str:
    """A copy of a file with the first answer of each question: Google's code takes no others."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                question["answers"] = question["answers"][:1]
    copy = os.path.join(folder, os.path.basename(path))
    with open(copy, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return copy


def row(what: str, pairs: List[Tuple[float, float]]) -> dict:
    ours, theirs = zip(*pairs)
    return {"": what, "ours": f"{np.median(ours):,.1f}", "Google's": f"{np.median(theirs):,.1f}",
            "ours / Google's": report.ratios(ours, theirs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    prepared, padded, full = [], [], []  # (ours, Google's)
    with tempfile.TemporaryDirectory() as work_dir:
        args.train_file = with_one_answer(args.train_file, work_dir)
        model = prepare_model("squad", args.model, "", os.path.join(work_dir, "model"))
        num_windows = len(load(args, work_dir))
        for _ in range(args.pairs):
            prepared.append((our_preparation(args), googles(args, model, "prepare")))
            theirs = googles(args, model, "train")
            for pairs, dynamic_padding in ((padded, True), (full, False)):
                pairs.append((our_training(args, model, work_dir, num_windows,
                                           dynamic_padding=dynamic_padding), theirs))
            print(f"ours, Google's: prepared {prepared[-1]}, trained {padded[-1]}, {full[-1]}",
                  flush=True)
    report.append(
        f"Reading comprehension, windows of {LENGTH} tokens, batch {BATCH_SIZE}, MiniLM, against "
        "Google's run_squad",
        [row("preparing, questions/s (median)", prepared), row("training, windows/s", padded),
         row("training, windows/s, all padded to the end", full)],
        command="python -m benchmarks.reading_throughput",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

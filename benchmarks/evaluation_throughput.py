"""Evaluation throughput, examples/s: ours and a peer's, in turn, in one run.

  python -m benchmarks.evaluation_throughput --set=cola --model=MINILM_TF --data=SHARED_DATA

CoLA's dev set (cola), or as many examples of its training set's sentences, joined up so that each
fills all 128 tokens (full);
--eval_batch_size at its default, 8, on one replica. The peer is Google's run_classifier on
TensorFlow 1.15, or, with --peer=float32, ours in float32. Both after their first steps, from a model
that was hardly trained.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import report
from benchmarks.training_throughput import (examples_of, googles_rate, prepare_model,
                                            write_cola_layout)
from encoder import classifier
from encoder.config import load_config
from encoder.encoding import load_encoding
from engine.checkpoints import checkpoints
from engine.devices import devices
from engine.devices.precision import FLOAT32, PRECISIONS, dtype_of
from engine.inference import Predictor
from tasks.data import TextSet, load_texts
from tasks.table import TASKS

BATCH_SIZE = 8


def train_a_little(model: str, data_dir: str, output_dir: str) -> None:
    subprocess.run(
        [sys.executable, "run_classifier.py", "--task_name=cola", f"--data_dir={data_dir}",
         f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
         f"--init_checkpoint={model}/bert_model.ckpt", f"--output_dir={output_dir}",
         "--do_train", "--num_gpus=0", "--num_train_epochs=0.01"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL, check=True)


def write_full(data: str, directory: str) -> str:
    """Examples of 128 tokens, as many as CoLA's dev set has."""
    write_cola_layout(examples_of("full", data), directory)
    with open(os.path.join(directory, "train.tsv"), encoding="utf-8") as file:
        lines = file.readlines()
    with open(os.path.join(directory, "dev.tsv"), "w", encoding="utf-8") as file:
        file.writelines(lines[:1043])
    return directory


def load_dev(model: str, data_dir: str, store_dir: str) -> TextSet:
    config = load_config(f"{model}/bert_config.json")
    encoding = load_encoding(f"{model}/vocab.txt", do_lower_case=True, max_seq_length=128,
                             vocab_size=config.vocab_size)
    return load_texts(TASKS["cola"], TASKS["cola"].dev, data_dir, encoding, store_dir,
                      dynamic_padding=True)


def our_rate(model: str, texts: TextSet, output_dir: str, precision: str) -> float:
    """The whole set, after it was predicted once."""
    forward = classifier.forward_of(load_config(f"{model}/bert_config.json"), 2)
    source = texts.source(with_labels=False)
    found = devices.find_devices(num_gpus=0, training=False)
    with Predictor(forward, found._replace(dtype=dtype_of(precision))) as predictor:
        predictor.restore(checkpoints.latest(output_dir))
        predictor.predict(source, BATCH_SIZE)
        start = time.time()
        predictor.predict(source, BATCH_SIZE)
        return len(texts) / (time.time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--set", choices=["cola", "full"], default="cola")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help="of ours")
    parser.add_argument("--peer", choices=["google", "float32"], default="google")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as work_dir:
        data_dir = os.path.abspath(os.path.join(args.data, "glue", "CoLA"))
        if args.set == "full":
            data_dir = write_full(args.data, os.path.join(work_dir, "full"))
        model = prepare_model("cola", args.model, "", os.path.join(work_dir, "model"))
        output_dir = os.path.join(work_dir, "ours")
        train_a_little(model, data_dir, output_dir)
        texts = load_dev(model, data_dir, work_dir)
        for _ in range(args.pairs):
            theirs.append(googles_rate(model, data_dir, "evaluate") if args.peer == "google"
                          else our_rate(model, texts, output_dir, FLOAT32))
            ours.append(our_rate(model, texts, output_dir, args.precision))
            print(f"ours {ours[-1]:.1f}, peer {theirs[-1]:.1f} examples/s", flush=True)
    name = "Google's run_classifier" if args.peer == "google" else "ours in float32"
    report.append(
        f"Evaluation throughput, 1 replica, {args.precision}: examples/s (median)",
        [{"set": args.set, "ours": f"{np.median(ours):.1f}", name: f"{np.median(theirs):.1f}",
          "ours / peer": report.ratios(ours, theirs)}],
        command=f"python -m benchmarks.evaluation_throughput --set={args.set} "
                f"--precision={args.precision} --peer={args.peer}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

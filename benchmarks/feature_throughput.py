"""Vectors of texts, texts/s: ours and sentence-transformers', in turn, in one run.

  python -m benchmarks.feature_throughput --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --sentence_transformers_python=PYTHON --name="SST-2" --input_file=texts.txt

The mean of the last layer's states of each text, max_seq_length 128, batches of 32, on the same
cores: from the texts to the array, tokenizing included, in a second pass. The vectors are compared,
too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Tuple

import numpy as np

from benchmarks import report
from encoder.config import load_config
from encoder.encoding import load_encoding
from engine.checkpoints import checkpoints
from engine.devices import devices
from engine.inference import Predictor
from features.model import forward_of
from features.texts import Texts, read_texts

LENGTH = 128
BATCH_SIZE = 32


def our_rate(model: str, input_file: str) -> Tuple[float, np.ndarray]:
    """Texts per second and the vectors, [texts, D]."""
    config = load_config(f"{model}/bert_config.json")
    encoding = load_encoding(f"{model}/vocab.txt", do_lower_case=True, max_seq_length=LENGTH,
                             vocab_size=config.vocab_size)

    def source():
        return Texts.of(list(read_texts(input_file)), encoding).source()

    with Predictor(forward_of(config, [-1], "mean"),
                   devices.find_devices(num_gpus=0, training=False)) as predictor:
        predictor.restore(checkpoints.open_checkpoint(f"{model}/bert_model.ckpt"))
        predictor.predict(source(), BATCH_SIZE)
        start = time.time()
        vectors = predictor.predict(source(), BATCH_SIZE)["states"]
        return len(vectors) / (time.time() - start), vectors


def peers_rate(args, folder: str) -> Tuple[float, np.ndarray]:
    """The same of sentence-transformers."""
    output_file = os.path.join(folder, "vectors.npy")
    answer = subprocess.run(
        [args.sentence_transformers_python, "-m", "benchmarks.peers.sentence_vectors",
         f"--model_dir={args.huggingface_model}", f"--input_file={args.input_file}",
         f"--output_file={output_file}", f"--max_seq_length={LENGTH}",
         f"--batch_size={BATCH_SIZE}"],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return json.loads(answer.stdout.splitlines()[-1])["texts_per_second"], np.load(output_file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "huggingface_model", "sentence_transformers_python", "input_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--name", required=True, help="of the texts, for the table")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    args.input_file = os.path.abspath(args.input_file)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.pairs):
            rate, our_vectors = our_rate(args.model, args.input_file)
            ours.append(rate)
            rate, their_vectors = peers_rate(args, folder)
            theirs.append(rate)
            print(f"ours {ours[-1]:.1f}, peer {theirs[-1]:.1f} texts/s", flush=True)
    report.append(
        f"Vectors of {args.name}, {len(our_vectors):,} texts, MiniLM: texts/s (median)",
        [{"ours": f"{np.median(ours):.1f}", "sentence-transformers": f"{np.median(theirs):.1f}",
          "ours / peer": report.ratios(ours, theirs),
          "largest difference of a value": f"{np.abs(our_vectors - their_vectors).max():.1g}"}],
        command=f"python -m benchmarks.feature_throughput --name='{args.name}'",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                  **{package: report.version_of(args.sentence_transformers_python, package)
                     for package in ("sentence_transformers", "torch")}})


if __name__ == "__main__":
    main()

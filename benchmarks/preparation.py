"""Preparing data, sentences/s, text file to ready to train: ours and Google's, in turn, in one run.

  python -m benchmarks.preparation --model=MINILM_TF --data_dir=glue/CoLA

Google's file_based_convert_examples_to_features (TensorFlow 1.15) is the peer; beside it
the tokenizers alone: ours against the `tokenizers` package, which uses all cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import report
from encoder.encoding import load_encoding
from tasks.data import load_texts
from tasks.data import read_examples
from tasks.table import TASKS
from tokenization import BatchTokenizer

_TEXTS_PER_CALL = 4096


def our_rate(args) -> float:
    """The rate of building a new store from the file, without the import of modules."""
    with tempfile.TemporaryDirectory() as store_dir:
        start = time.time()
        encoding = load_encoding(f"{args.model}/vocab.txt", do_lower_case=True,
                                 max_seq_length=128, vocab_size=30522)
        texts = load_texts(TASKS["cola"], TASKS["cola"].train, args.data_dir, encoding, store_dir,
                           dynamic_padding=True)
        return len(texts) / (time.time() - start)


def googles_rate(args) -> float:
    with tempfile.TemporaryDirectory() as work_dir:
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.peers.google_classifier",
             f"--data_dir={args.data_dir}", f"--model={args.model}", f"--work_dir={work_dir}",
             "--measure=prepare"], cwd=report.ROOT, stdout=subprocess.PIPE,
            universal_newlines=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])["rate"]


def tokenizer_rates(args):
    """Texts per second of ours, which starts empty, and of the `tokenizers` package."""
    from tokenizers import BertWordPieceTokenizer
    texts = [example.text_a
             for example in read_examples(TASKS["cola"], TASKS["cola"].train, args.data_dir)]
    chunks = [texts[i:i + _TEXTS_PER_CALL] for i in range(0, len(texts), _TEXTS_PER_CALL)]
    ours = BatchTokenizer(f"{args.model}/vocab.txt")
    theirs = BertWordPieceTokenizer(f"{args.model}/vocab.txt")
    start = time.time()
    for chunk in chunks:
        ours.encode_batch(chunk)
    middle = time.time()
    for chunk in chunks:
        for encoding in theirs.encode_batch(chunk, add_special_tokens=False):
            np.array(encoding.ids, np.int32)
    return len(texts) / (middle - start), len(texts) / (time.time() - middle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    args.data_dir = os.path.abspath(args.data_dir)
    rows = []
    pairs = [(our_rate(args), googles_rate(args)) for _ in range(args.pairs)]
    rows.append(("text file → ready to train", "Google's converter", zip(*pairs)))
    rows.append(("tokenizing alone", "the tokenizers package",
                 zip(*[tokenizer_rates(args) for _ in range(args.pairs)])))
    table = []
    for what, peer, (ours, theirs) in ((what, peer, tuple(rates)) for what, peer, rates in rows):
        table.append({"CoLA, sentences/s (median)": what, "ours": f"{np.median(ours):,.0f}",
                      "peer": f"{np.median(theirs):,.0f}", "the peer is": peer,
                      "ours / peer": report.ratios(ours, theirs)})
    report.append("Preparing data", table, command="python -m benchmarks.preparation",
                  versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                            "tokenizers": report.version_of(sys.executable, "tokenizers")})


if __name__ == "__main__":
    main()

"""Creating pretraining data, examples/s, ours and Google's in turn; and a large text's memory.

  python -m benchmarks.create_pretraining_data --input_file=en_books.txt --vocab_file=VOCAB \\
    --work_dir=DIR

The peer is Google's create_pretraining_data (bert-tensorflow, TensorFlow 1.15). Both are
whole commands, start-up included, on the same text with the same flags. For the memory
the text is repeated to --gigabytes; give 0 to leave that out. That takes as much disk for
the text and twice as much for arrays and examples.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from benchmarks import report
from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

import tensorflow.compat.v1 as tf

_SAMPLE_SECONDS = 0.2


class FamilyMemory(threading.Thread):
    """The most anonymous memory of a process and its children, in MB, sampled: shared pages once"""

    def __init__(self, process_id: int):
        super().__init__(daemon=True)
        self._process_id = process_id
        self.peak_mb = 0.0

    def run(self):
        while os.path.exists(f"/proc/{self._process_id}/smaps_rollup"):
            family = [self._process_id, *_children(self._process_id)]
            self.peak_mb = max(self.peak_mb, sum(map(_anonymous_mb, family)))
            time.sleep(_SAMPLE_SECONDS)


def _children(process_id: int):
    try:
        with open(f"/proc/{process_id}/task/{process_id}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:  # it has ended
        return []


def _anonymous_mb(process_id: int) -> float:
    try:
        with open(f"/proc/{process_id}/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss_Anon")) / 1024
    except OSError:
        return 0.0


def run_ours(flags, output: str):
    """Examples, seconds and peak memory of our command."""
    start = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "pretraining.create_data", *flags, f"--output_file={output}"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL)
    memory = FamilyMemory(process.pid)
    memory.start()
    if process.wait():
        raise RuntimeError("pretraining.create_data failed")
    with open(f"{output}.json", encoding="utf-8") as file:
        return json.load(file)["num_examples"], time.time() - start, memory.peak_mb


def googles_rate(flags, output: str) -> float:
    start = time.time()
    subprocess.run([sys.executable, "-m", "bert.create_pretraining_data", *flags,
                    f"--output_file={output}"], stderr=subprocess.DEVNULL, check=True)
    seconds = time.time() - start
    return sum(1 for _ in tf.python_io.tf_record_iterator(output)) / seconds


def our_rate(flags, output: str) -> float:
    count, seconds, _ = run_ours(flags, output)
    return count / seconds


def measure_pairs(args, flags):
    """Examples per second of ours and of Google's, pair by pair."""
    for _ in range(args.pairs):
        with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
            yield (our_rate(flags, os.path.join(folder, "ours.tfrecord")),
                   googles_rate(flags, os.path.join(folder, "google.tfrecord")))


def measure_large_text(args):
    """Examples, seconds and peak memory on the text, repeated, one pass."""
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        path = os.path.join(folder, "text.txt")
        with open(path, "wb") as file:
            while file.tell() < args.gigabytes * 1e9:
                with open(args.input_file, "rb") as text:
                    shutil.copyfileobj(text, file)
                file.write(b"\n\n")
        return run_ours([f"--input_file={path}", f"--vocab_file={args.vocab_file}",
                         "--dupe_factor=1"], os.path.join(folder, "ours.tfrecord"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--dupe_factor", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    args = parser.parse_args()
    args.input_file, args.vocab_file, args.work_dir = map(
        os.path.abspath, (args.input_file, args.vocab_file, args.work_dir))
    flags = [f"--input_file={args.input_file}", f"--vocab_file={args.vocab_file}",
             f"--dupe_factor={args.dupe_factor}", "--max_seq_length=128"]
    versions = {"TensorFlow": report.version_of(sys.executable, "tensorflow")}
    command = "python -m benchmarks.create_pretraining_data"
    if args.pairs:
        ours, theirs = zip(*measure_pairs(args, flags))
        report.append("Creating pretraining data", [{
            "text → TFRecords, examples/s (median)": f"dupe_factor {args.dupe_factor}",
            "ours": f"{np.median(ours):,.0f}", "Google's": f"{np.median(theirs):,.0f}",
            "ours / Google's": report.ratios(ours, theirs)}], command=command, versions=versions)
    if args.gigabytes:
        count, seconds, peak_mb = measure_large_text(args)
        report.append("Creating pretraining data from a large text", [{
            "text": f"{args.gigabytes:g} GB", "examples": f"{count:,}",
            "seconds": f"{seconds:.0f}", "anonymous memory at most, MB": f"{peak_mb:.0f}"}],
            command=command, versions=versions)


if __name__ == "__main__":
    main()

"""Stage 1 of distillation, examples/s: ours, and the same losses the plain way, in turn.

  python -m benchmarks.distillation_throughput --model=MINILM_TF --data=SHARED_DATA

The teacher has MiniLM's shape (6 layers), the student 2 of its layers; SST-2, batch 32. The
peer's models are Google's modeling on TensorFlow 1.15, every batch padded to 128.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks import report
from benchmarks.training_throughput import (
    answer_of, examples_of, prepare_model, write_cola_layout)

STUDENT, LAYERS = "2,384,12,1536", "3,6"  # of the teacher: what ours learns from by itself
STEPS = 120


def make_teacher(model: str, data_dir: str, directory: str) -> str:
    """A classifier of the model: its values do not matter for the time."""
    subprocess.run(
        [sys.executable, "run_classifier.py", "--task_name=cola", f"--data_dir={data_dir}",
         f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
         f"--init_checkpoint={model}/bert_model.ckpt", f"--output_dir={directory}", "--do_train",
         "--num_cpu_replicas=1", f"--num_train_epochs={1.5 / 130}"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL, check=True)
    return directory


def our_rate(teacher: str, data_dir: str) -> float:
    with tempfile.TemporaryDirectory() as output_dir:
        answer = subprocess.run(
            [sys.executable, "-m", "distillation.run", "--stage=intermediate", "--task_name=cola",
             f"--data_dir={data_dir}", f"--teacher={teacher}", f"--student={STUDENT}",
             "--do_train", f"--output_dir={output_dir}",
             "--max_seq_length=128", "--num_cpu_replicas=1", "--train_batch_size=32",
             f"--num_train_epochs={(STEPS + 0.5) / 130}"],
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    return float(re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1].replace(",", ""))


def peers_rate(model: str, data_dir: str) -> float:
    return answer_of(sys.executable, "google_distillation", f"--data_dir={data_dir}",
                     f"--model={model}", f"--student={STUDENT}", f"--layers={LAYERS}")["rate"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as work_dir:
        data_dir = os.path.join(work_dir, "data")
        write_cola_layout(examples_of("sst2", args.data), data_dir)
        model = prepare_model("sst2", args.model, args.data, os.path.join(work_dir, "model"))
        teacher = make_teacher(model, data_dir, os.path.join(work_dir, "teacher"))
        for _ in range(args.pairs):
            theirs.append(peers_rate(model, data_dir))
            ours.append(our_rate(teacher, data_dir))
            print(f"ours {ours[-1]:.1f}, peer {theirs[-1]:.1f} examples/s", flush=True)
    report.append(
        "Stage 1 of distillation, SST-2, 6 layers to 2, 1 × 32: examples/s (median)",
        [{"ours": f"{np.median(ours):.1f}", "peer": f"{np.median(theirs):.1f}",
          "ours / peer": report.ratios(ours, theirs)}],
        command="python -m benchmarks.distillation_throughput",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""7.8 million sentence pairs: the time to prepare them, its memory, and the time the second time.

  python -m benchmarks.large_set --model=MINILM_TF --data_dir=glue/MNLI --work_dir=DIR

MNLI's training rows over and over, each time with other words of theirs exchanged and a
number added, so that no line repeats. The peer is the reproduction of TinyBERT, which
reports 50 minutes and 2 GB for its augmented data. Then stage 1 of distillation trains on
them, 6 layers to 2, on two replicas. Needs about 5 GB of disk.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

from benchmarks import report
from encoder.encoding import load_encoding
from engine import log
from tasks.data import load_texts
from tasks.table import TASKS

NUM_PAIRS = 7_800_000


def write_pairs(data_dir: str, path: str, num_pairs: int) -> None:
    with open(os.path.join(data_dir, "train.tsv"), encoding="utf-8", newline="\n") as file:
        header, *lines = file.read().splitlines()
    rows = [line.split("\t") for line in lines]
    generator = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        file.write(header + "\n")
        for number in range(num_pairs):
            fields = list(rows[number % len(rows)])
            for column in (8, 9):
                words = fields[column].split(" ")
                other = rows[generator.randrange(len(rows))][column].split(" ")
                words[generator.randrange(len(words))] = generator.choice(other)
                fields[column] = " ".join(words) + f" {number}"
            file.write("\t".join(fields) + "\n")


class AnonymousMemory(threading.Thread):
    """The most anonymous resident memory of a process, this one or another, in MB, sampled."""

    def __init__(self, process: str = "self"):
        super().__init__(daemon=True)
        self._path = f"/proc/{process}/status"
        self.peak_mb = 0.0

    def run(self):
        while True:
            with open(self._path) as file:
                line = next((line for line in file if line.startswith("RssAnon")), None)
            if line is None:
                return  # the process has ended
            self.peak_mb = max(self.peak_mb, int(line.split()[1]) / 1024)
            time.sleep(0.05)


def prepare(args) -> dict:
    """What a run does before its training, without the import of modules."""
    memory = AnonymousMemory()
    memory.start()
    start = time.time()
    encoding = load_encoding(os.path.join(args.model, "vocab.txt"), do_lower_case=True,
                             max_seq_length=128, vocab_size=30522)
    texts = load_texts(TASKS["mnli"], TASKS["mnli"].train, args.work_dir, encoding,
                       os.path.join(args.work_dir, "store"), dynamic_padding=True)
    texts.source(with_labels=True)
    return {"pairs": len(texts), "seconds": time.time() - start, "peak_mb": memory.peak_mb}


def prepare_in_a_process(args, work_dir: str) -> dict:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.large_set", f"--model={args.model}",
         f"--data_dir={args.data_dir}", f"--work_dir={work_dir}", "--prepare"],
        cwd=report.ROOT, stdout=subprocess.PIPE, universal_newlines=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def make_teacher(args, directory: str) -> str:
    """A classifier of the model: its values do not matter for the memory."""
    model = args.model
    subprocess.run(
        [sys.executable, "run_classifier.py", "--task_name=mnli", f"--data_dir={args.data_dir}",
         f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
         f"--init_checkpoint={model}/bert_model.ckpt", f"--output_dir={directory}", "--do_train",
         "--num_cpu_replicas=1", "--num_train_epochs=0.005"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL, check=True)
    return directory


def distil(args, work_dir: str) -> dict:
    """Some steps of stage 1 on the pairs, which are prepared; one process for all replicas."""
    teacher = make_teacher(args, os.path.join(work_dir, "teacher"))
    start = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "distillation.run", "--stage=intermediate", "--task_name=mnli",
         f"--data_dir={work_dir}", f"--teacher={teacher}", "--student=2,384,12,1536",
         "--do_train", f"--output_dir={work_dir}/student", f"--store_dir={work_dir}/store",
         "--num_cpu_replicas=2", "--train_batch_size=16",
         f"--num_train_epochs={50.5 * 32 / args.num_pairs}"],
        cwd=report.ROOT, stderr=subprocess.DEVNULL)
    memory = AnonymousMemory(str(process.pid))
    memory.start()
    if process.wait():
        raise RuntimeError("the distillation failed")
    return {"seconds": time.time() - start, "peak_mb": memory.peak_mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--num_pairs", type=int, default=NUM_PAIRS)
    parser.add_argument("--prepare", action="store_true", help="only prepare what is there")
    args = parser.parse_args()
    if args.prepare:
        print(json.dumps(prepare(args)))
        return
    args.data_dir, args.model = map(os.path.abspath, (args.data_dir, args.model))
    with tempfile.TemporaryDirectory(dir=args.work_dir) as work_dir:
        log.info("Writing the pairs")
        write_pairs(args.data_dir, os.path.join(work_dir, "train.tsv"), args.num_pairs)
        first, second = (prepare_in_a_process(args, work_dir) for _ in range(2))
        trained = distil(args, work_dir)
    report.append(
        f"Preparing {first['pairs']:,} sentence pairs",
        [{"": name, "seconds": f"{result['seconds']:.1f}",
          "anonymous resident memory at most, MB": f"{result['peak_mb']:.0f}"}
         for name, result in (("the first time", first), ("the second time", second),
                              ("50 steps of distillation, stage 1, 2 × 16", trained))],
        command="python -m benchmarks.large_set",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""Large sets: the seconds and the memory that commands take for them.

  python -m benchmarks.large_set pairs --model=MINILM_TF --data=SHARED_DATA --work_dir=DIR
  python -m benchmarks.large_set pretraining_data --size=1000000000 ...
  python -m benchmarks.large_set pool --size=1000000 ...

pairs: 7.8 million sentence pairs, MNLI's training rows over and over, each time with other words of
theirs exchanged and a number added, so that no line repeats. They are prepared twice; then stage 1
of distillation trains on them, 6 layers to 2, on two replicas. The reproduction of TinyBERT reports
50 minutes and 2 GB for its augmented data. Needs about 5 GB of disk. pretraining_data: the novels
until they have so many bytes, one pass. Three times as much disk. pool: phrases to rewrite with,
the clauses of SST-2 with a number added.
"""

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterator

from benchmarks import report

Row = Dict[str, str]
_SAMPLE_SECONDS = 0.1


def run(what: str, *command: str) -> Row:
    """Runs a command; its seconds, and the most anonymous memory of it and its children, sampled."""
    start, peak = time.time(), 0.0
    process = subprocess.Popen([sys.executable, *command], cwd=report.ROOT, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, _anonymous_mb(process.pid))
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return {"": what, "seconds": f"{time.time() - start:.1f}",
            "anonymous resident memory at most, MB": f"{peak:.0f}"}


def _anonymous_mb(process_id: int) -> float:
    """Of a process and its children; pages that several of them share count once."""
    process = f"/proc/{process_id}"
    try:
        with open(f"{process}/task/{process_id}/children") as children, \
                open(f"{process}/smaps_rollup") as pages:
            own = sum(int(line.split()[1]) for line in pages if line.startswith("Pss_Anon")) / 1024
            return own + sum(map(_anonymous_mb, map(int, children.read().split())))
    except OSError:  # it has ended
        return 0.0


def write_lines(path: str, lines: Iterator[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)


def pairs(args: argparse.Namespace, folder: str) -> Iterator[Row]:
    with open(f"{args.data}/glue/MNLI/train.tsv", encoding="utf-8", newline="\n") as file:
        header, *lines = file.read().splitlines()
    rows, generator = [line.split("\t") for line in lines], random.Random(0)

    def made_up() -> Iterator[str]:
        yield header + "\n"
        for number in range(args.size):
            fields = list(rows[number % len(rows)])
            for column in (8, 9):
                words = fields[column].split(" ")
                other = rows[generator.randrange(len(rows))][column].split(" ")
                words[generator.randrange(len(words))] = generator.choice(other)
                fields[column] = " ".join(words) + f" {number}"
            yield "\t".join(fields) + "\n"

    write_lines(f"{folder}/train.tsv", made_up())
    model, store = args.model, f"--store_dir={folder}/store"
    for what in ("the first time", "the second time"):
        yield run(what, "-m", "benchmarks.programs", "prepare", "--task=mnli", f"--model={model}",
                  f"--data_dir={folder}", store)
    run("a teacher, whose values do not matter", "run_classifier.py", "--task_name=mnli",
        "--do_train", f"--data_dir={args.data}/glue/MNLI", f"--init_checkpoint={model}",
        f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
        f"--output_dir={folder}/teacher", "--num_gpus=0", "--num_train_epochs=0.005")
    yield run("50 steps of distillation, stage 1, 2 × 16", "-m", "distillation.run",
              "--stage=intermediate", "--task_name=mnli", f"--data_dir={folder}",
              f"--teacher={folder}/teacher", store, "--do_train",
              "--student=2,384,12,1536", f"--output_dir={folder}/student", "--num_cpu_replicas=2",
              "--train_batch_size=16", f"--num_train_epochs={50.5 * 32 / args.size}")


def pretraining_data(args: argparse.Namespace, folder: str) -> Iterator[Row]:
    with open(f"{args.data}/pretrain/en_books.txt", encoding="utf-8") as file:
        text = file.read() + "\n\n"
    write_lines(f"{folder}/text.txt", itertools.repeat(text, args.size // len(text) + 1))
    yield run(f"pretraining data of {args.size / 1e9:g} GB", "-m", "pretraining.create_data",
              f"--input_file={folder}/text.txt", "--dupe_factor=1",
              f"--vocab_file={args.data}/vocab/uncased_en/vocab.txt",
              f"--output_file={folder}/examples")


def pool(args: argparse.Namespace, folder: str) -> Iterator[Row]:
    run("clauses", "-m", "rewriting.create_data", f"--input_file={args.data}/glue/SST-2/train.tsv",
        f"--output_dir={folder}/slots", "--num_negatives=1", "--num_eval_negatives=1")
    with open(f"{folder}/slots/pool.txt", encoding="utf-8") as file:
        clauses = itertools.cycle(file.read().splitlines())
    write_lines(f"{folder}/pool.txt", (
        f"{clause} {number}\n" for number, clause in zip(range(args.size), clauses)))
    yield run(f"a pool of {args.size:,} phrases, prepared", "-m", "benchmarks.programs", "load_pool",
              f"--model={args.model}", f"--pool_file={folder}/pool.txt")


SETS = {"pairs": (pairs, 7_800_000), "pretraining_data": (pretraining_data, 10**9),
        "pool": (pool, 10**6)}


def main() -> None:
    parser = report.parser_of(__doc__, "model", "data", "work_dir")
    parser.add_argument("what", choices=SETS)
    parser.add_argument("--size", type=int, help="pairs, bytes or phrases")
    args = parser.parse_args()
    measure, size = SETS[args.what]
    args.size = args.size or size
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        report.append("Large sets", list(measure(args, folder)))


if __name__ == "__main__":
    main()

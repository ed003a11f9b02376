"""How many trainings fail, and what the others reach, with Adam's bias correction and without it.

  python -m benchmarks.stability --model=MINILM_TF --data=SHARED_DATA --work_dir=DIR --minutes=60 \\
    --huggingface_model=MINILM_HF --huggingface_python=PYTHON

Small sets at two learning rates with five seeds, and beside them the peer's AdamW, which corrects. Some
seeds of a set at a rate are a cell, whose result is WORK_DIR/<cell>.json: the same command goes on with
the cells that have none, the most valuable first, and ends with the table of those that have one.
A training has failed if its record has the warning that it does not learn.
"""

import argparse
import glob
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

from benchmarks import report
from benchmarks.agreement import METRICS, remembered
from engine.disk import files
from engine.training import run_record
from runs import results, tries

PLAIN, CORRECTED, PEER = "plain", "corrected", "huggingface"
UPDATES = {PLAIN: "Google's", CORRECTED: "`--adam_bias_correction`", PEER: "Hugging Face's AdamW"}
RATES = (2e-4, 5e-5)
EXAMPLES, QUESTIONS, EPOCHS_OF_READING = 2000, 2000, 0.5
RESUME, NEW_WIKI = "resume", "new-wiki"
GLUE = {"cola": "CoLA", "sst-2": "SST-2", "sts-b": "STS-B"}
EPOCHS = {"cola": 2.0, "sst-2": 1.0, "sts-b": 1.0, RESUME: 3.0, NEW_WIKI: EPOCHS_OF_READING}
HEADERS = {"cola": 0, "sst-2": 1, "sts-b": 1}  # lines
PEERS_SETS = ("cola", "sts-b")


class Cell(NamedTuple):
    """Trainings that differ in their seeds alone."""
    rate: float
    seeds: Tuple[int, ...]
    data: str
    update: str

    @property
    def name(self) -> str:
        return f"{self.data}-{self.rate}-{self.update}-{'-'.join(map(str, sorted(self.seeds)))}"


def cells() -> List[Cell]:
    """All cells, the most valuable first."""
    first, more = [(3, 1, 2)], [(4, 5)]  # Resume's third seed is known to fail
    ours = [list(itertools.starmap(Cell, itertools.product([rate], seeds, EPOCHS, (PLAIN, CORRECTED))))
            for seeds in (first, more) for rate in RATES]
    peers = [list(itertools.starmap(Cell, itertools.product([rate], first, PEERS_SETS, [PEER])))
             for rate in RATES]
    return [*ours[0], *peers[0], *ours[1], *peers[1], *ours[2], *ours[3]]


def run_cell(args: argparse.Namespace, cell: Cell) -> Dict[str, Any]:
    run = run_huggingface if cell.update == PEER else run_ours
    start = time.time()
    return {"tries": run(args, cell), "seconds": time.time() - start, "commit": report.commit()}


def run_ours(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    output_dir = os.path.join(args.work_dir, cell.name)
    with open(f"{output_dir}.log", "w") as log:
        subprocess.run(
            [sys.executable, *command_of(args, cell), "--do_train", "--do_eval", "--num_cpu_replicas=1",
             f"--init_checkpoint={args.model}", f"--output_dir={output_dir}",
             f"--seeds={','.join(map(str, cell.seeds))}", f"--learning_rates={cell.rate}",
             f"--num_train_epochs={EPOCHS[cell.data]}", f"--store_dir={args.work_dir}/store",
             f"--adam_bias_correction={cell.update == CORRECTED}"],
            cwd=report.ROOT, stdout=log, stderr=log, check=True)
    found = tries_of(args, cell)
    shutil.rmtree(output_dir)
    return found


def tries_of(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    """The tries of a cell that have ended, also while it runs."""
    found = []
    for path in sorted(glob.glob(f"{args.work_dir}/{cell.name}/{tries.FOLDER}/*/eval_results.json")):
        folder = os.path.dirname(path)
        found.append({"try": os.path.basename(folder),
                      "metric": results.read(folder).get(metric_of(cell.data)),
                      "failed": run_record.load(folder).warning is not None})
    return found


def command_of(args: argparse.Namespace, cell: Cell) -> List[str]:
    folder = os.path.join(args.work_dir, "data", cell.data)
    if cell.data == RESUME:
        return ["-m", "tagging.run", "--train_batch_size=16",
                *[f"--{part}_file={args.data}/ner_zh/{name}.char.bmes"
                  for part, name in (("train", "resume_train_first1000"), ("dev", "resume_dev"))]]
    if cell.data == NEW_WIKI:
        return ["run_squad.py", "--train_batch_size=16", "--max_seq_length=192", "--doc_stride=96",
                "--max_query_length=32", f"--train_file={folder}/train.json",
                f"--predict_file={args.data}/qa_en/newwiki_dev.json"]
    return ["run_classifier.py", "--train_batch_size=32", f"--task_name={cell.data}",
            f"--data_dir={folder}", f"--vocab_file={args.model}/vocab.txt",
            f"--bert_config_file={args.model}/bert_config.json"]


def metric_of(data: str) -> str:
    """The name of a set's metric in our results."""
    metric = METRICS[data][-1 if data == "cola" else 0] if data in METRICS else "f1"
    return f"eval_{metric}" if metric == "accuracy" or data == RESUME else metric


def run_huggingface(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    answers = [subprocess.run(
        [args.huggingface_python, "-m", "benchmarks.peers.huggingface", f"--seed={seed}",
         f"--model_dir={args.huggingface_model}", f"--task={cell.data}",
         f"--data_dir={args.work_dir}/data/{cell.data}", f"--learning_rate={cell.rate}",
         f"--epochs={EPOCHS[cell.data]}"],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
        for seed in cell.seeds]
    return [{"failed": None, "metric": json.loads(answer.stdout.splitlines()[-1])[metric_of(cell.data)]}
            for answer in answers]


def write_parts(args: argparse.Namespace) -> None:
    """Writes the part of each larger training set that is used, if it is not there."""
    for data in set(args.sets).intersection(GLUE):
        folder, name = os.path.join(args.work_dir, "data", data), GLUE[data]
        if os.path.exists(folder):
            continue
        with open(f"{args.data}/glue/{name}/train.tsv", encoding="utf-8", newline="\n") as file:
            lines = file.readlines()
        header, rows = lines[:HEADERS[data]], lines[HEADERS[data]:]
        with files.atomic_folder(folder) as draft:
            with open(f"{draft}/train.tsv", "w", encoding="utf-8", newline="\n") as file:
                file.writelines(header + random.Random(0).sample(rows, EXAMPLES))
            shutil.copy(f"{args.data}/glue/{name}/dev.tsv", draft)
    if NEW_WIKI in args.sets:
        write_questions(args)


def write_questions(args: argparse.Namespace) -> None:
    """Writes some paragraphs of New-Wiki with so many questions."""
    with open(f"{args.data}/qa_en/newwiki_train.json", encoding="utf-8") as file:
        squad = json.load(file)
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    random.Random(0).shuffle(paragraphs)
    ends = np.cumsum([len(paragraph["qas"]) for paragraph in paragraphs])
    part = paragraphs[:np.searchsorted(ends, QUESTIONS, side="right")]
    os.makedirs(os.path.join(args.work_dir, "data", NEW_WIKI), exist_ok=True)
    files.write_json(os.path.join(args.work_dir, "data", NEW_WIKI, "train.json"),
                     {"version": "1.1", "data": [{"title": "part", "paragraphs": part}]})


def rows_of(measured: Dict[Cell, List[Dict[str, Any]]]) -> List[Dict[str, str]]:
    rows = []
    for data, rate, update in itertools.product(EPOCHS, RATES, UPDATES):
        ended = [each for cell, found in measured.items()
                 if (cell.data, cell.rate, cell.update) == (data, rate, update) for each in found]
        if ended:
            # A correlation with a constant is no number.
            values = np.nan_to_num(np.array([each["metric"] for each in ended], float))
            failed = "–" if update == PEER else f"{sum(each['failed'] for each in ended)} of {len(ended)}"
            rows.append({"set, metric": f"{data}, {metric_of(data)}", "rate": f"{rate:g}",
                         "update": UPDATES[update], "failed": failed,
                         "mean": f"{np.mean(values):.3f}", "worst": f"{min(values):.3f}",
                         "best": f"{max(values):.3f}",
                         "each seed": ", ".join(f"{value:.3f}" for value in values)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data", "work_dir", "huggingface_model", "huggingface_python"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--sets", nargs="+", choices=list(EPOCHS), default=list(EPOCHS),
                        help="to train on; several calls with different ones can run side by side")
    parser.add_argument("--updates", nargs="+", choices=list(UPDATES), default=list(UPDATES),
                        help="likewise")
    parser.add_argument("--minutes", type=float, default=60,
                        help="after which no cell starts; 0: only the table")
    args = parser.parse_args()
    end = time.time() + 60 * args.minutes
    write_parts(args)
    measured: Dict[Cell, List[Dict[str, Any]]] = {}
    for cell in cells():
        path = os.path.join(args.work_dir, f"{cell.name}.json")
        is_asked = cell.data in args.sets and cell.update in args.updates
        if os.path.exists(path) or is_asked and time.time() < end:
            measured[cell] = remembered(path, lambda: run_cell(args, cell))["tries"]
        else:
            measured[cell] = tries_of(args, cell)
        print(cell.name, measured[cell] or "has no result yet", flush=True)
    if not any(measured.values()):
        sys.exit("No training has ended yet.")
    report.append(
        f"Trainings with and without Adam's bias correction: {EXAMPLES:,} examples of CoLA (2 epochs), "
        "SST-2 and STS-B (1 epoch), 32 a step; Resume (1,000, 3 epochs) and New-Wiki "
        f"({QUESTIONS:,} questions, half an epoch), 16 a step; MiniLM encoder", rows_of(measured),
        command="python -m benchmarks.stability",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                  "PyTorch": report.version_of(args.huggingface_python, "torch"),
                  "transformers": report.version_of(args.huggingface_python, "transformers")})


if __name__ == "__main__":
    main()

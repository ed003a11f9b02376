"""Is a training as good and as fast as Hugging Face's recipe? Three seeds, the trainings in turn.

  python -m benchmarks.quality cola --model=MINILM_TF --data=SHARED_DATA --work_dir=DIR --replicas 1 2 \\
    --peer_model=MINILM_HF --peer_python=PYTHON
  python -m benchmarks.quality sst-2 --epochs=0.1 --precisions float32 bfloat16 --optimizers ...
  python -m benchmarks.quality tagging --train_file=train.txt --dev_file=dev.txt ...
  python -m benchmarks.quality reading --train_file=train.json --dev_file=dev.json ...
  python -m benchmarks.quality choice --train_file=train.jsonl --dev_file=dev.jsonl ...   # benchmarks.next_sentences

The same data, weights, examples a step, epochs, learning rate and schedule. Tagging reads CoNLL's
columns or CLUENER's lines. Reading has questions of at most 32 tokens and windows of 192 that
advance by about 96; its answers are scored as the official scripts do. `--optimizers` without a
value leaves the peer out. A training that has ended in the work directory is not repeated, so that
this can be interrupted.
"""

import argparse
import itertools
import os
import re
import shlex
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

from benchmarks import report
from engine.devices.devices import FLOAT32, PRECISIONS
from engine.disk import files
from reading import scores
from runs import squad_files

# Its own AdamW corrects the moments' bias, so that its first hundreds of steps are smaller.
OPTIMIZERS = {"adamw": "Hugging Face", "google": "Hugging Face, Google's Adam"}


class Task(NamedTuple):
    """The commands, which `_OURS` and `_PEER` continue, and what they are measured by."""
    ours: str
    peer: str
    metrics: Tuple[str, ...] = ("f1",)
    batch_size: int = 16  # of a step
    epochs: float = 3


def _of_glue(name: str, folder: str, *metrics: str) -> Task:
    data = f"--data_dir={{data}}/glue/{folder}"
    return Task(f"run_classifier.py --task_name={name} {data} --do_eval",
                f"benchmarks.peers.huggingface --task={name} {data} --epochs={{epochs}}", metrics, 32)


_FILES = "--train_file={train_file} --dev_file={dev_file} "
_WINDOWS = "--max_seq_length=192 {version_2}"
TASKS = {
    "cola": _of_glue("cola", "CoLA", "accuracy", "matthews_correlation"),
    "sst-2": _of_glue("sst-2", "SST-2", "accuracy"),
    "sts-b": _of_glue("sts-b", "STS-B", "pearson", "spearman"),
    "tagging": Task(f"-m tagging.run {_FILES} --do_eval",
                    f"benchmarks.peers.huggingface_ner {_FILES} --epochs={{epochs}}"),
    "choice": Task(f"-m choice.run {_FILES} --do_eval --max_seq_length=96",
                   f"benchmarks.peers.huggingface_choice {_FILES} --num_steps={{steps}} --max_seq_length=96",
                   ("accuracy",), epochs=1),
    "reading": Task(
        "run_squad.py --train_file={train_file} --predict_file={dev_file} --do_predict --doc_stride=96 "
        f"{_WINDOWS} --max_query_length=32",
        f"benchmarks.peers.huggingface_qa {_FILES} --num_steps={{steps}} --doc_stride=80 {_WINDOWS} "
        "--output_file={out}.json",
        epochs=1)}
_OURS = (" --do_train --init_checkpoint={model} --vocab_file={model}/vocab.txt --seed={seed} "
         "--bert_config_file={model}/bert_config.json --output_dir={out} --store_dir={work_dir}/store "
         "--learning_rate={learning_rate} --num_train_epochs={epochs} --num_cpu_replicas={replicas} "
         "--train_batch_size={batch} --precision={precision}")
_PEER = (" --model_dir={peer_model} --seed={seed} --learning_rate={learning_rate} --optimizer={optimizer} "
         "--batch_size={batch}")


def mean_f1(args: argparse.Namespace, predictions: Dict[str, str]) -> float:
    """Of the predictions for all questions of the dev set, by their ids; "" where there is none."""
    measure = scores.squad_2 if args.version_2 else scores.squad
    return float(np.mean([measure(predictions.get(question.id, ""),
                                  [answer.text for answer in question.answers]).f1
                          for paragraph in squad_files.paragraphs(args.dev_file)
                          for question in paragraph.questions]))


def run_ours(args: argparse.Namespace, seed: int, replicas: int, precision: str, out: str
             ) -> Dict[str, Any]:
    task = TASKS[args.task]
    words = shlex.split((task.ours + _OURS).format(**dict(
        vars(args), seed=seed, replicas=replicas, precision=precision, out=out,
        batch=task.batch_size // replicas)))
    answer = subprocess.run([sys.executable, *words], cwd=report.ROOT, stderr=subprocess.PIPE,
                            universal_newlines=True)
    if answer.returncode:
        sys.exit(answer.stderr)
    last = {name: re.findall(pattern, answer.stderr)[-1].replace(",", "") for name, pattern in (
        ("rate", r"([\d,.]+) examples/s"), ("steps", r"\bstep (\d[\d,]*)/"))}
    if args.task == "reading":
        metrics = {"f1": mean_f1(args, files.read_json(f"{out}/predictions.json", "predictions"))}
    else:
        results = files.read_json(f"{out}/eval_results.json", "results")
        metrics = {metric: results.get(metric, results.get(f"eval_{metric}"))
                   for metric in task.metrics}
    return {**metrics, "rate": float(last["rate"]), "steps": int(last["steps"])}


def run_peer(args: argparse.Namespace, seed: int, optimizer: str, steps: int, out: str
             ) -> Dict[str, Any]:
    task = TASKS[args.task]
    words = shlex.split((task.peer + _PEER).format(**dict(
        vars(args), seed=seed, optimizer=optimizer, steps=steps, out=out, batch=task.batch_size)))
    answer = report.answer_of(args.peer_python, "-m", *words)
    if args.task == "reading":
        answer["f1"] = mean_f1(args, files.read_json(f"{out}.json", "predictions"))
    return answer


def train_all(args: argparse.Namespace) -> Dict[str, List[Dict[str, Any]]]:
    """The results of each training, by its name."""
    trainings: Dict[str, List[Dict[str, Any]]] = {}

    def add(title: str, name: str, run: Any) -> Dict[str, Any]:
        out = os.path.join(args.work_dir, name)
        result = report.remembered(f"{out}.json", lambda: run(out))
        print(title, result, flush=True)
        trainings.setdefault(title, []).append(result)
        return result

    for seed in report.SEEDS:
        for replicas, precision in itertools.product(args.replicas, args.precisions):
            batch = TASKS[args.task].batch_size // replicas
            ours = add(f"ours, {replicas} × {batch}, {precision}", f"ours-{replicas}-{precision}-{seed}",
                       lambda out: run_ours(args, seed, replicas, precision, out))
        for optimizer in args.optimizers:
            add(OPTIMIZERS[optimizer], f"huggingface-{optimizer}-{seed}",
                lambda out: run_peer(args, seed, optimizer, ours["steps"], out))
    return trainings


def main() -> None:
    parser = report.parser_of(__doc__, "model", "work_dir")
    parser.add_argument("task", choices=TASKS)
    for name in ("data", "train_file", "dev_file", "peer_model"):
        parser.add_argument(f"--{name}", type=os.path.abspath)
    parser.add_argument("--peer_python")
    parser.add_argument("--version_2_with_negative", dest="version_2", action="store_const",
                        const="--version_2_with_negative", default="", help="of reading")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1], help="of ours")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=[FLOAT32], help="of ours")
    parser.add_argument("--optimizers", nargs="*", choices=list(OPTIMIZERS), default=list(OPTIMIZERS),
                        help="of the peer")
    args = parser.parse_args()
    if args.optimizers and not (args.peer_python and args.peer_model):
        parser.error("the peer needs --peer_python and --peer_model; --optimizers without a value "
                     "leaves it out")
    args.epochs = args.epochs or TASKS[args.task].epochs
    os.makedirs(args.work_dir, exist_ok=True)
    trainings = train_all(args)
    rates = {name: [result["rate"] for result in results] for name, results in trainings.items()}
    ours = next(iter(rates))
    rows = [{**report.row_of_seeds(name, TASKS[args.task].metrics, results),
             "examples/s (median)": f"{np.median(rates[name]):.1f}",
             "first / this": "" if name == ours else report.ratios(rates[ours], rates[name])}
            for name, results in trainings.items()]
    report.append(
        f"{args.task}: dev set after {args.epochs:g} epochs at {args.learning_rate:g}, MiniLM encoder, three "
        f"seeds (mean ± deviation) {os.path.basename(args.train_file or '')}", rows,
        **report.versions_of(args.optimizers and args.peer_python, "torch", "transformers"))


if __name__ == "__main__":
    main()

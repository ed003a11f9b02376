"""Are trained vectors as good as sentence-transformers', and trained as fast? Three seeds.

  python -m benchmarks.similarity_quality --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --sentence_transformers_python=PYTHON --data=SHARED_DATA --work_dir=DIR --minutes=60

STS-B (CoSENT, its dev set's Spearman) and half of New-Wiki's questions with their paragraphs (ranking;
questions of its dev set and of a part of SQuAD 1.1 among all paragraphs of their file), one epoch at 2e-5.
Here two replicas with --adam_bias_correction, which is the peer's update; each trained model is measured by
the same command. What has ended in the work directory is not repeated.
"""

import itertools
import json
import os
import random
import shutil
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from benchmarks import report
from encoder.convert import convert_from_huggingface
from engine.data import text_files
from engine.disk import files
from engine.training import summaries
from runs import results, squad_files

LENGTH, RATE = 128, 2e-5
MOST_QUESTIONS = 2048  # that are trained on
WARMUP = 0.1  # of the steps, as the commands have it


class Task(NamedTuple):
    """A training set, its dev sets, the loss and the metrics."""
    train: str
    dev: Dict[str, str]  # name → file
    loss: str  # one of the peer's LOSSES
    batch_size: int  # of a step
    metrics: Sequence[str]


TASKS = {
    "sts-b": Task("glue/STS-B/train.tsv", {"STS-B": "glue/STS-B/dev.tsv"}, "score", 32, ["spearman"]),
    "new-wiki": Task("qa_en/newwiki_train.json", {"New-Wiki": "qa_en/newwiki_dev.json",
                                                  "SQuAD": "qa_en/squad1_dev.json"},
                     "ranking", 64, ["recall_at_1", "mrr_at_10"])}


def case_of(task: Task, path: str) -> Dict[str, Any]:
    """The training set as the peer reads it."""
    if path.endswith(".json"):
        rows = [[question.text, paragraph.context] for paragraph in squad_files.paragraphs(path)
                for question in paragraph.questions]
        rows = random.Random(0).sample(rows, min(MOST_QUESTIONS, len(rows)))
        scores: List[float] = []
    else:
        (_, names), *lines = text_files.tsv_rows(path)
        first, second, score = (names.index(name) for name in ("sentence1", "sentence2", "score"))
        rows = [[fields[first], fields[second]] for _, fields in lines]
        scores = [float(fields[score]) for _, fields in lines]
    return {"rows": rows, "scores": scores, "loss": task.loss,
            "warmup_steps": int(WARMUP * (len(rows) // task.batch_size))}


def similarity(*flags: str) -> None:
    report.run_here("-m", "similarity.run", f"--max_seq_length={LENGTH}", *flags)


def measures(args, task: Task, model: str, folder: str) -> Dict[str, float]:
    """A model's measures of the dev sets."""
    measured = {}
    for name, path in task.dev.items():
        output_dir = os.path.join(folder, name)
        similarity(f"--dev_file={args.data}/{path}", "--do_eval", f"--init_checkpoint={model}",
                   f"--output_dir={output_dir}", "--num_cpu_replicas=1")
        values = results.read(output_dir)
        measured.update({f"{name} {metric}": values[metric] for metric in task.metrics})
    return measured


def run_ours(args, task: Task, seed: int, folder: str) -> Dict[str, Any]:
    out, path = os.path.join(folder, "out"), f"{args.data}/{task.train}"
    if task.loss == "ranking":
        pairs, path = case_of(task, path)["rows"], f"{args.work_dir}/pairs.jsonl"
        files.write_text(path, "".join(json.dumps({"anchor": anchor, "positive": positive}) + "\n"
                                       for anchor, positive in pairs))
    similarity(f"--train_file={path}", "--do_train", f"--init_checkpoint={args.model}",
               f"--output_dir={out}", "--num_cpu_replicas=2", f"--train_batch_size={task.batch_size // 2}",
               f"--learning_rate={RATE}", "--num_train_epochs=1", f"--seed={seed}",
               "--adam_bias_correction", f"--store_dir={args.work_dir}/store")
    rates = [rate for _, rate in summaries.read_history(out)["examples_per_second"]]
    return {"rate": sum(rates) / len(rates), **measures(args, task, out, folder)}


def run_theirs(args, task: Task, seed: int, folder: str) -> Dict[str, Any]:
    os.makedirs(folder)
    case = os.path.join(folder, "case.json")
    files.write_json(case, case_of(task, f"{args.data}/{task.train}"))
    answer = report.answer_of(
        args.sentence_transformers_python, "-m", "benchmarks.peers.sentences", "train",
        f"--model_dir={args.huggingface_model}", f"--input_file={case}", f"--seed={seed}",
        f"--output_dir={folder}/hf", f"--learning_rate={RATE}", f"--batch_size={task.batch_size}",
        f"--max_seq_length={LENGTH}")
    convert_from_huggingface(f"{folder}/hf", f"{folder}/tf")
    return {**answer, **measures(args, task, f"{folder}/tf", folder)}


def untrained(args, task: Task, _: int, folder: str) -> Dict[str, Any]:
    return measures(args, task, args.model, folder)


KINDS = {"untrained": untrained, "here, 2 replicas": run_ours, "sentence-transformers": run_theirs}


def rows_of(name: str, kind: str, trainings: List[Dict[str, Any]]) -> Iterator[Dict[str, str]]:
    rates = ", ".join(f"{each['rate']:.1f}" for each in trainings if "rate" in each)
    for metric in trainings[0] if trainings else ():
        if metric != "rate":
            values = [each[metric] for each in trainings]
            yield {"set": name, "training": kind, "measure": metric,
                   "value": report.mean_and_deviation(values), "examples/s": rates}


def main() -> None:
    parser = report.parser_of(__doc__, "model", "huggingface_model", "sentence_transformers_python",
                              "data", "work_dir")
    parser.add_argument("--minutes", type=float, default=60, help="after which no training starts")
    args = parser.parse_args()
    os.makedirs(args.work_dir, exist_ok=True)
    end = time.time() + 60 * args.minutes
    trainings: Dict[Tuple[str, str], List[Dict[str, Any]]] = {
        case: [] for case in itertools.product(TASKS, KINDS)}
    for seed, (name, kind) in itertools.product(report.SEEDS, trainings):
        folder = os.path.join(args.work_dir, f"{name}-{kind.split(',')[0]}-{seed}")
        if kind == "untrained" and seed != report.SEEDS[0] or (
                time.time() > end and not os.path.exists(f"{folder}.json")):
            continue
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
        trainings[name, kind].append(report.remembered(
            f"{folder}.json", lambda: KINDS[kind](args, TASKS[name], seed, folder)))
        print(name, kind, seed, trainings[name, kind][-1], flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    report.append(
        f"Vectors trained for similarity, MiniLM, one epoch at {RATE:g}",
        [row for (name, kind), ended in trainings.items() for row in rows_of(name, kind, ended)],
        **report.versions_of(args.sentence_transformers_python, "sentence_transformers", "torch"))


if __name__ == "__main__":
    main()

"""How good short trainings on few examples get, and how many fail: small sets, two rates, five seeds.

  python -m benchmarks.stability --model=MINILM_TF --data=SHARED_DATA --work_dir=DIR --minutes=60 \\
    --huggingface_model=MINILM_HF --huggingface_python=PYTHON
  python -m benchmarks.stability ... --variants before corrected --rates 2e-4 --before=TREE

A variant is what is compared: the update (Google's, or with Adam's bias correction), another checkout
(--before), windows of so many batches, or the peer. A set with a variant at a rate is a cell, whose result is
WORK_DIR/<cell>.json: the same command goes on with the cells that have none, and ends with the table of
those that have one. A training has failed if its record has the warning that it does not learn.

Three sets need files that are not in SHARED_DATA:
  emoji: the environment variable EMOJI_JSON names emoji.json of the npm package emoji.json 16.0.0;
  r52: R52_TXT names data/R52/test.txt of the GitHub repository yao8839836/text_gcn;
  mrpc: glue/MRPC/train.tsv and dev.tsv in --data are Microsoft's msr_paraphrase_train.txt and _test.txt.
"""

import argparse
import collections
import glob
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from benchmarks import report
from engine.disk import files
from engine.training import run_record
from runs import results, tries

EXAMPLES, QUESTIONS = 2000, 2000
FOLDER = "{folder}"  # in a flag: where the parts of a set are


class Variant(NamedTuple):
    """How a set is trained on."""
    title: str
    corrected: bool = False  # with Adam's bias correction
    is_before: bool = False  # in the checkout of --before
    window: Optional[int] = None  # in batches; None: by the length of the training
    fits: str = ""  # --fit_output_layer; "": its default
    peer: Tuple[str, ...] = ()  # flags of the peer, which trains in place of ours


VARIANTS = {
    "plain": Variant("Google's update"),
    "fitted": Variant("output layer fitted", fits="true"),
    "random": Variant("output layer starts at random", fits="false"),
    "corrected": Variant("`--adam_bias_correction`", corrected=True),
    "before": Variant("before", is_before=True),
    "before_corrected": Variant("before, `--adam_bias_correction`", corrected=True, is_before=True),
    **{f"window_{count}": Variant(f"windows of {count}", window=count) for count in (50, 8, 1)},
    "huggingface": Variant("Hugging Face", peer=("--optimizer=adamw",)),
    "huggingface_fitted": Variant("Hugging Face, output layer fitted", peer=("--fit_output_layer",)),
    "huggingface_bias": Variant("Hugging Face, bias at the labels' mean", peer=("--initial_bias",)),
}


class DataSet(NamedTuple):
    """A small training set, with its dev set."""
    flags: Tuple[str, ...]  # of our command, which they begin with
    metric: str
    epochs: float
    write: Callable[[str, str], None] = lambda data, folder: None  # writes its parts, from those of --data


# --- The sets ----------------------------------------------------------------------------


def _part_of_glue(name: str, num_headers: int, dev: str = "dev") -> Callable[[str, str], None]:
    """Writes training examples drawn by chance, and so many of the dev set, or all if there are fewer."""
    def write(data: str, folder: str) -> None:
        for part in ("train", dev):
            with open(f"{data}/glue/{name}/{part}.tsv", encoding="utf-8", newline="\n") as file:
                head, rows = list(itertools.islice(file, num_headers)), list(file)
            if len(rows) > EXAMPLES:
                rows = random.Random(0).sample(rows, EXAMPLES)
            files.write_text(f"{folder}/{part}.tsv", "".join(head + rows))
    return write


def _write_questions(data: str, folder: str) -> None:
    """Some paragraphs of New-Wiki, with so many questions."""
    with open(f"{data}/qa_en/newwiki_train.json", encoding="utf-8") as file:
        squad = json.load(file)
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    random.Random(0).shuffle(paragraphs)
    ends = np.cumsum([len(paragraph["qas"]) for paragraph in paragraphs])
    part = paragraphs[:np.searchsorted(ends, QUESTIONS, side="right")]
    files.write_json(os.path.join(folder, "train.json"),
                     {"version": "1.1", "data": [{"title": "part", "paragraphs": part}]})


def _write_labelled(folder: str, rows: List[Tuple[str, str]], num_dev: int) -> None:
    """Writes texts with their labels, the dev set drawn by chance."""
    random.Random(0).shuffle(rows)
    seen = {label for _, label in rows[num_dev:]}
    for name, part in (("train", rows[num_dev:]), ("dev", [row for row in rows[:num_dev] if row[1] in seen])):
        files.write_text(f"{folder}/{name}.tsv", "sentence\tlabel\n" + "".join(
            "\t".join(" ".join(field.split()) for field in row) + "\n" for row in part))


def _write_topics(data: str, folder: str) -> None:
    """Questions of New-Wiki, 30 to 300 about each of 15 articles."""
    with open(f"{data}/qa_en/newwiki_train.json", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    rows: List[Tuple[str, str]] = []
    for number, article in enumerate(articles[:15]):
        questions = [asked["question"] for paragraph in article["paragraphs"] for asked in paragraph["qas"]]
        rows += [(question, article["title"]) for question in questions[:30 + 270 * number // 14]]
    _write_labelled(folder, rows, len(rows) // 4)


def _write_news(data: str, folder: str) -> None:
    """1,600 reports of Reuters, their 47 classes as uneven as they are: half of them with at most five."""
    with open(os.environ["R52_TXT"], encoding="utf-8") as file:
        rows = [tuple(line.rstrip("\n").split("\t")[::-1]) for line in file]
    _write_labelled(folder, random.Random(0).sample(rows, 1600), 400)


def _write_types(data: str, folder: str) -> None:
    """Sentences of CoNLL-2003, with the types of entities that they name: any number of four."""
    for name, part in (("train", "train_first5000"), ("dev", "testa_first1200")):
        with open(f"{data}/ner_en/conll2003_{part}.txt", encoding="utf-8") as file:
            sentences = [[line.split() for line in block.splitlines()] for block in file.read().split("\n\n")]
        files.write_text(f"{folder}/{name}.tsv", "sentence\tlabels\n" + "".join(
            " ".join(word[0] for word in words) + "\t"
            + ",".join(sorted({word[-1][2:] for word in words} - {""})) + "\n"
            for words in sentences[:EXAMPLES] if words and words[0][0] != "-DOCSTART-"))


def _write_emoji(data: str, folder: str) -> None:
    """Names of emoji with their subgroups, of which each has at least 12: 55 classes, the largest with 258 flags."""
    with open(os.environ["EMOJI_JSON"], encoding="utf-8") as file:
        rows = {(each["name"], each["subgroup"]) for each in json.load(file) if "skin tone" not in each["name"]}
    names = collections.Counter(subgroup for _, subgroup in rows)
    _write_labelled(folder, sorted(row for row in rows if names[row[1]] >= 12), 400)


def _classifier(task: str, *more: str) -> Tuple[str, ...]:
    return ("run_classifier.py", f"--task_name={task}", f"--data_dir={FOLDER}", "--train_batch_size=32", *more)


def _tagger(train: str, dev: str) -> Tuple[str, ...]:
    return ("-m", "tagging.run", f"--train_file={train}", f"--dev_file={dev}", "--train_batch_size=16")


def _own_file(*more: str) -> Tuple[str, ...]:
    return ("run_classifier.py", "--task_name=file", f"--data_dir={FOLDER}", "--train_batch_size=16", *more)


_CLUENER = "{data}/ner_zh/cluener_"
_CONLL = "{data}/ner_en/conll2003_"
_RESUME = "{data}/ner_zh/resume_"
SETS = {
    "cola": DataSet(_classifier("cola"), "matthews_correlation", 2, _part_of_glue("CoLA", 0)),
    "sst-2": DataSet(_classifier("sst-2"), "eval_accuracy", 1, _part_of_glue("SST-2", 1)),
    "sts-b": DataSet(_classifier("sts-b"), "pearson", 1, _part_of_glue("STS-B", 1)),
    "mrpc": DataSet(_classifier("mrpc"), "eval_accuracy", 2, _part_of_glue("MRPC", 1)),
    "mnli": DataSet(_classifier("mnli"), "eval_accuracy", 1, _part_of_glue("MNLI", 1, "dev_matched")),
    "topics": DataSet(_own_file(), "macro_f1", 2, _write_topics),
    "emoji": DataSet(_own_file(), "macro_f1", 2, _write_emoji),
    "r52": DataSet(_own_file(), "macro_f1", 1.5, _write_news),
    "types": DataSet(_own_file("--label_kind=multi_label"), "micro_f1", 1, _write_types),
    "cluener": DataSet(_tagger(f"{_CLUENER}train_first5000.json", f"{_CLUENER}dev.json"), "eval_f1", 0.5),
    "conll": DataSet(_tagger(f"{_CONLL}train_first5000.txt", f"{_CONLL}testa_first1200.txt"), "eval_f1", 1),
    "resume": DataSet(_tagger(f"{_RESUME}train_first1000.char.bmes", f"{_RESUME}dev.char.bmes"), "eval_f1", 3),
    "new-wiki": DataSet(("run_squad.py", "--train_batch_size=16", "--max_seq_length=192", "--doc_stride=96",
                         "--max_query_length=32", f"--train_file={FOLDER}/train.json",
                         "--predict_file={data}/qa_en/newwiki_dev.json"), "f1", 0.5, _write_questions),
}


# --- The trainings -----------------------------------------------------------------------


class Cell(NamedTuple):
    """Trainings that differ in their seeds alone."""
    data: str
    rate: float
    variant: str

    @property
    def name(self) -> str:
        return f"{self.data}-{self.rate}-{self.variant}".replace(" ", "_").replace(",", "")


def run_cell(args: argparse.Namespace, cell: Cell) -> Dict[str, Any]:
    run = run_huggingface if VARIANTS[cell.variant].peer else run_ours
    start = time.time()
    return {"tries": run(args, cell), "seconds": time.time() - start, "commit": report.commit()}


def folder_of(args: argparse.Namespace, data: str) -> str:
    """The folder with the parts of a set, which are written if they are not there."""
    folder = os.path.join(args.work_dir, "data", Cell(data, 0, "").name)
    if not os.path.exists(folder):
        with files.atomic_folder(folder) as draft:
            SETS[data].write(args.data, draft)
    return folder


def run_ours(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    output_dir, (data, variant) = os.path.join(args.work_dir, cell.name), (SETS[cell.data], VARIANTS[cell.variant])
    command = [flag.format(folder=folder_of(args, cell.data), data=args.data) for flag in data.flags]
    if variant.window:
        path, command = (command[0], command[1:]) if command[0] != "-m" else (command[1], command[2:])
        command = ["-c", f"""import runpy; from engine.data import plan
plan.window_batches = lambda steps: {variant.window}
runpy.run_module({path.replace(".py", "")!r}, run_name="__main__")""", *command]
    with open(f"{output_dir}.log", "w") as log:
        subprocess.run(
            [sys.executable, *command, "--do_train", "--do_eval", "--num_cpu_replicas=1",
             f"--init_checkpoint={args.model}", f"--vocab_file={args.model}/vocab.txt",
             f"--bert_config_file={args.model}/bert_config.json", f"--output_dir={output_dir}",
             f"--seeds={','.join(map(str, args.seeds))}", f"--learning_rates={cell.rate}",
             f"--num_train_epochs={args.epochs or data.epochs}", f"--store_dir={args.work_dir}/store",
             f"--adam_bias_correction={variant.corrected}", "--new_output_layer",
             *([f"--fit_output_layer={variant.fits}"] if variant.fits else [])],
            cwd=args.before if variant.is_before else report.ROOT, stdout=log, stderr=log, check=True)
    ended = tries_of(args, cell)
    shutil.rmtree(output_dir)
    return ended


def tries_of(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    """The tries of a cell that have ended, also while it runs."""
    ended = []
    for path in sorted(glob.glob(f"{args.work_dir}/{cell.name}/{tries.FOLDER}/*/eval_results.json")):
        folder = os.path.dirname(path)
        measured = results.read(folder)
        ended.append({"metric": measured.get(SETS[cell.data].metric), "r2": measured.get("r2"),
                      "failed": run_record.load(folder).warning is not None})
    return ended


def run_huggingface(args: argparse.Namespace, cell: Cell) -> List[Dict[str, Any]]:
    data, ended = SETS[cell.data], []
    batch_size = next(flag.replace("--train_", "--") for flag in data.flags if flag.startswith("--train_batch_size"))
    for seed in args.seeds:
        measured = report.answer_of(
            args.huggingface_python, "-m", "benchmarks.peers.huggingface", f"--seed={seed}",
            f"--model_dir={args.huggingface_model}", f"--task={cell.data}",
            f"--data_dir={folder_of(args, cell.data)}", f"--learning_rate={cell.rate}",
            f"--epochs={args.epochs or data.epochs}", batch_size, *VARIANTS[cell.variant].peer)
        ended.append({"failed": None, "r2": measured.get("r2"),
                      "metric": measured[data.metric.replace("eval_", "")]})
    return ended


def row_of(cell: Cell, ended: List[Dict[str, Any]]) -> Dict[str, str]:
    # A correlation with a constant is no number.
    values = np.nan_to_num(np.array([each["metric"] for each in ended], float))
    of_r2 = [each["r2"] for each in ended if each.get("r2") is not None]
    failed = "–" if ended[0]["failed"] is None else f"{sum(each['failed'] for each in ended)} of {len(ended)}"
    return {"set, metric": f"{cell.data}, {SETS[cell.data].metric}", "rate": f"{cell.rate:g}",
            "variant": VARIANTS[cell.variant].title, "failed": failed,
            "mean ± deviation": report.mean_and_deviation(values),
            "worst": f"{min(values):.3f}", "best": f"{max(values):.3f}",
            "each seed": ", ".join(f"{value:.3f}" for value in values),
            "R²": report.mean_and_deviation(of_r2) if of_r2 else ""}


def main() -> None:
    parser = report.parser_of(__doc__, "model", "data", "work_dir")
    parser.add_argument("--huggingface_model", type=os.path.abspath)
    parser.add_argument("--before", type=os.path.abspath)
    parser.add_argument("--huggingface_python")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS),
                        help="several calls can run side by side")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=["plain", "corrected"])
    parser.add_argument("--rates", nargs="+", type=float, default=[2e-4, 5e-5])
    parser.add_argument("--epochs", type=float, help="in place of those of the sets")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--minutes", type=float, default=60,
                        help="after which no cell starts; 0: only the table")
    args = parser.parse_args()
    end, rows = time.time() + 60 * args.minutes, []
    for cell in itertools.starmap(Cell, itertools.product(args.sets, args.rates, args.variants)):
        path = os.path.join(args.work_dir, f"{cell.name}.json")
        if os.path.exists(path) or time.time() < end:
            ended = report.remembered(path, lambda: run_cell(args, cell))["tries"]
        else:
            ended = tries_of(args, cell)
        print(cell.name, ended or "has no result yet", flush=True)
        rows += [row_of(cell, ended)] if ended else []
    if not rows:
        sys.exit("No training has ended yet.")
    report.append(
        f"Short trainings: {EXAMPLES:,} examples of CoLA (2 epochs), SST-2 and STS-B (1 epoch), 32 a step; "
        f"Resume (1,000, 3 epochs), New-Wiki ({QUESTIONS:,} questions, half an epoch), 16 a step; MiniLM "
        "encoder", rows, **report.versions_of(args.huggingface_python, "torch", "transformers"))


if __name__ == "__main__":
    main()

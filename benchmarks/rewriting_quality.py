"""How well slots are filled: a scorer with and without span pretraining, beside baselines.

  python -m benchmarks.rewriting_quality --name='English novels' --texts=en_books.txt \\
    --model=MINILM_TF --work_dir=DIR

Draws as many texts of each file and runs scripts/rewrite.sh on them twice, without and with span
pretraining on the slots' texts, two replicas on the CPU. All rows rank the same phrases of
the same held-out slots: of each, the clause that stood there and 19 others, by turns those
that BM25 ranks highest for the text and random ones. What is finished in the work
directory is not repeated; the ten rewrites are at the end of its printed.txt.
"""

import argparse
import os
import subprocess
import sys
from typing import Dict, List, Sequence

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report, rewriting_baselines
from engine.disk import files
from rewriting import evaluation
from rewriting.texts import clauses, read_texts

MAX_SEQ_LENGTH = 64


def draw_texts(paths: Sequence[str], count: int, output: str) -> None:
    """Writes texts of the files that have at least two clauses, a line each, drawn by chance."""
    drawn = []
    for path in paths:
        # A text file's lines may have a label behind the text.
        texts = {" ".join(text.split("\t")[0].split()) for text in read_texts(path, "--texts")}
        with_slots = sorted(text for text in texts if len(clauses(text)) > 1)
        order = np.random.RandomState(0).permutation(len(with_slots))[:count // len(paths)]
        drawn += [with_slots[number] for number in order]
    files.write_text(output, "".join(f"{text}\n" for text in drawn))


def run_recipe(args, pretrain_steps: int) -> str:
    """The folder of all results of scripts/rewrite.sh, and of what it has printed."""
    folder = os.path.join(args.work_dir, f"pretrained-{pretrain_steps}-steps")
    printed = os.path.join(folder, "printed.txt")
    if not os.path.exists(printed):
        answer = subprocess.run(
            ["scripts/rewrite.sh", "--num_train_epochs=1", "--train_batch_size=16",
             f"--learning_rate={args.learning_rate}"],
            cwd=report.ROOT, stdout=subprocess.PIPE, universal_newlines=True, check=True,
            env={**os.environ, "TEXTS": os.path.join(args.work_dir, "texts.txt"),
                 "MODEL": args.model, "OUTPUT_DIR": folder, "PYTHON": sys.executable,
                 "PRETRAIN_STEPS": str(pretrain_steps), "CUDA_VISIBLE_DEVICES": "",
                 "MAX_SEQ_LENGTH": str(MAX_SEQ_LENGTH)})
        files.write_text(printed, answer.stdout)
    return folder


def scorer_of(folder: str) -> Dict[str, str]:
    results = files.read_json(os.path.join(folder, "scorer", "eval_results.json"), "results")
    return {metric: f"{results[metric + '_test']:.3f}" for metric in evaluation.METRICS}


def rows_of(args) -> List[Dict[str, str]]:
    without, with_spans = (run_recipe(args, steps) for steps in (0, args.pretrain_steps))
    baselines = rewriting_baselines.rank(
        os.path.join(with_spans, "slots", "test.jsonl"), os.path.join(with_spans, "pretrained"),
        MAX_SEQ_LENGTH)
    rounded = {name: {metric: f"{value:.3f}" for metric, value in metrics.items()}
               for name, metrics in baselines.items()}
    figures = {**rounded,
               "scorer": scorer_of(without),
               f"scorer, {args.pretrain_steps} steps of span pretraining before":
                   scorer_of(with_spans)}
    return [{"ranked by": name, **row} for name, row in figures.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="of the texts, for the table")
    parser.add_argument("--texts", required=True, nargs="+", metavar="FILE")
    parser.add_argument("--model", required=True)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--num_texts", type=int, default=3000)
    parser.add_argument("--pretrain_steps", type=int, default=600)
    parser.add_argument("--learning_rate", type=float, default=5e-5, help="of the scorer")
    args = parser.parse_args()
    args.model, args.work_dir = os.path.abspath(args.model), os.path.abspath(args.work_dir)
    os.makedirs(args.work_dir, exist_ok=True)
    draw_texts(args.texts, args.num_texts, os.path.join(args.work_dir, "texts.txt"))
    report.append(
        f"Filling slots, {args.name}: {args.num_texts:,} texts, a tenth of them held out, 20 "
        "phrases for each slot", rows_of(args),
        command=f"python -m benchmarks.rewriting_quality --name='{args.name}' "
        f"--num_texts={args.num_texts} --pretrain_steps={args.pretrain_steps} "
        f"--learning_rate={args.learning_rate:g}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

"""How well slots are filled: a scorer with and without span pretraining, beside baselines.

  python -m benchmarks.rewriting_quality --name='English novels' --texts=en_books.txt \\
    --model=MINILM_TF --work_dir=DIR

Draws as many texts of each file and runs scripts/rewrite.sh on them twice, without and with span
pretraining on the slots' texts, two replicas on the CPU. All rows rank the same phrases of
the same held-out slots: of each, the clause that stood there and 19 others, by turns those
that BM25 ranks highest for the text and random ones. What is finished in the work
directory is not repeated; the ten rewrites are at the end of its printed.txt. Baselines: chance, BM25.
"""

import os
import subprocess
import sys
from typing import Dict, List, Sequence

import numpy as np

from engine.devices import runtime  # noqa: F401 (before anything that imports TensorFlow)

from benchmarks import report
from encoder import model_files
from encoder.encoding import Encoding
from engine.data.store import Records
from engine.disk import files
from rewriting import bm25, data, evaluation
from rewriting.slot_files import SlotExample, read_slots
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


def scorer_of(folder: str) -> Dict[str, float]:
    results = files.read_json(os.path.join(folder, "scorer", "eval_results.json"), "results")
    return {metric: results[f"{metric}_test"] for metric in evaluation.METRICS}


def readable(slots: Sequence[SlotExample], encoding: Encoding) -> List[SlotExample]:
    """The slots and phrases that `data.load_slots` keeps, if each slot has its own phrase."""
    is_readable = iter(data.encode_slots(slots, encoding).is_readable)
    kept = [slot._replace(phrases=tuple(phrase for phrase in slot.phrases if next(is_readable)))
            for slot in slots]
    return [slot for slot, original in zip(kept, slots)
            if slot.phrases[:1] == original.phrases[:1]]


def by_bm25(slots: Sequence[SlotExample]) -> np.ndarray:
    """The BM25 score of each phrase for the text around its slot."""
    phrases = [phrase for slot in slots for phrase in slot.phrases]
    index = bm25.Index(Records.of_chunk(bm25.encode(phrases)))
    slot_of = np.repeat(np.arange(len(slots)), [len(slot.phrases) for slot in slots])
    scores = np.zeros(len(phrases), np.float32)
    for number, slot in enumerate(slots):
        its_phrases = slot_of == number
        scores[its_phrases] = index.scores(f"{slot.before} {slot.after}")[its_phrases]
    return scores


def baselines_of(slots_file: str, model: str) -> Dict[str, Dict[str, float]]:
    """The metrics of each baseline on the same phrases: those that the model can read."""
    encoding = model_files.open_folder(model, "--model").encoding(MAX_SEQ_LENGTH)
    slots = readable(list(read_slots(slots_file)), encoding)
    num_phrases = np.array([len(slot.phrases) for slot in slots])
    return {name: evaluation.rank(num_phrases, np.ones_like(num_phrases), scores) for name, scores in (
        ("chance", np.zeros(num_phrases.sum())), ("BM25", by_bm25(slots)))}


def rows_of(args) -> List[Dict[str, str]]:
    without, with_spans = (run_recipe(args, steps) for steps in (0, args.pretrain_steps))
    baselines = baselines_of(os.path.join(with_spans, "slots", "test.jsonl"),
                             os.path.join(with_spans, "pretrained"))
    title = f"scorer, {args.pretrain_steps} steps of span pretraining before"
    figures = {**baselines, "scorer": scorer_of(without), title: scorer_of(with_spans)}
    return [{"ranked by": name, **{metric: f"{value:.3f}" for metric, value in metrics.items()}}
            for name, metrics in figures.items()]


def main() -> None:
    parser = report.parser_of(__doc__, "model", "work_dir")
    parser.add_argument("--name", required=True, help="of the texts, for the table")
    parser.add_argument("--texts", required=True, nargs="+", metavar="FILE")
    parser.add_argument("--num_texts", type=int, default=3000)
    parser.add_argument("--pretrain_steps", type=int, default=600)
    parser.add_argument("--learning_rate", type=float, default=5e-5, help="of the scorer")
    args = parser.parse_args()
    os.makedirs(args.work_dir, exist_ok=True)
    draw_texts(args.texts, args.num_texts, os.path.join(args.work_dir, "texts.txt"))
    report.append(
        f"Filling slots, {args.name}: {args.num_texts:,} texts, a tenth of them held out, 20 "
        "phrases for each slot", rows_of(args))


if __name__ == "__main__":
    main()

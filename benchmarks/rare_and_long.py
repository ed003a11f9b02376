"""What --class_weights and --long_texts do on real texts: trainings evaluated on the same set.

  python -m benchmarks.rare_and_long --set=rare --model=MINILM_TF --data=glue/SST-2
  python -m benchmarks.rare_and_long --set=long --model=MINILM_TF --data=newwiki_train.json

rare: 1,000 positive sentences of SST-2 and 200 negative ones; evaluated on its whole dev set.
long: which article of Wikipedia a paragraph is from, with 32 tokens at a time; every third
paragraph is held out. Runs with windows have fewer epochs, for about as many steps as the others.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks import report

Row = Tuple[str, str]  # label, text

NUM_FREQUENT, NUM_RARE = 1000, 200
RARE_EPOCHS = 4
LONG_EPOCHS, WINDOWS_EPOCHS = 6, 1  # a paragraph has some six windows
LENGTHS = {"rare": 64, "long": 32}
WAYS = {
    "rare": [["--class_weights=" + weights] if weights else [] for weights in ("", "balanced")],
    "long": [[f"--long_texts={way}"] for way in ("head", "head_tail", "windows")]}


def rare(data: str) -> Tuple[List[Row], List[Row]]:
    """Training rows, of which few have the label 0, and rows of the dev set."""
    train, dev = (_sst2(os.path.join(data, name)) for name in ("train.tsv", "dev.tsv"))
    random.Random(1).shuffle(train)
    by_label = {label: [row for row in train if row[0] == label] for label in "01"}
    return by_label["1"][:NUM_FREQUENT] + by_label["0"][:NUM_RARE], dev


def _sst2(path: str) -> List[Row]:
    with open(path, encoding="utf-8", newline="") as file:
        return [(label, text) for text, label in
                list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]]


def long(data: str) -> Tuple[List[Row], List[Row]]:
    """Paragraphs and their articles' titles."""
    with open(data, encoding="utf-8") as file:
        rows = [(article["title"], " ".join(paragraph["context"].split()))
                for article in json.load(file)["data"] for paragraph in article["paragraphs"]]
    return [row for number, row in enumerate(rows) if number % 3], rows[::3]


def write(rows: Sequence[Row], path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{label}\t{text}\n" for label, text in rows)


def evaluation(args, way: Sequence[str], data_dir: str, output_dir: str) -> Dict[str, Any]:
    """Trains with the flags of a way; returns eval_results.json."""
    epochs = (RARE_EPOCHS if args.set == "rare"
              else WINDOWS_EPOCHS if "--long_texts=windows" in way else LONG_EPOCHS)
    subprocess.run(
        [sys.executable, "run_classifier.py", "--task_name=file", f"--data_dir={data_dir}",
         f"--init_checkpoint={args.model}", f"--output_dir={output_dir}", "--do_train", "--do_eval",
         f"--max_seq_length={LENGTHS[args.set]}", f"--num_train_epochs={epochs}",
         "--learning_rate=1e-4", "--num_gpus=0", *way], cwd=report.ROOT, check=True)
    with open(os.path.join(output_dir, "eval_results.json")) as file:
        return json.load(file)


def row(way: Sequence[str], results: Dict[str, Any]) -> Dict[str, str]:
    classes = results["per_class"]
    shown = {"flags": " ".join(f"`{flag}`" for flag in way) or "none",
             "accuracy": f"{results['eval_accuracy']:.3f}",
             "macro F1": f"{sum(one['f1'] for one in classes) / len(classes):.3f}"}
    if len(classes) == 2:
        shown["recall of the rare and the frequent class"] = ", ".join(
            f"{one['recall']:.3f}" for one in classes)
    return {**shown, "steps": f"{results['global_step']:,}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=["rare", "long"], required=True)
    parser.add_argument("--model", required=True, help="a folder with a pretrained encoder")
    parser.add_argument("--data", required=True, help="the folder of SST-2, or SQuAD's JSON")
    args = parser.parse_args()
    train, dev = (rare if args.set == "rare" else long)(args.data)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write(train, os.path.join(folder, "train.tsv"))
        write(dev, os.path.join(folder, "dev.tsv"))
        for number, way in enumerate(WAYS[args.set]):
            rows.append(row(way, evaluation(args, way, folder,
                                            os.path.join(folder, f"model{number}"))))
            print(rows[-1], flush=True)
    title = (f"SST-2, {NUM_FREQUENT:,} positive and {NUM_RARE} negative sentences, {RARE_EPOCHS} "
             "epochs: the whole dev set" if args.set == "rare" else
             f"The article of a paragraph, 32 tokens at a time: {len(dev)} held-out paragraphs")
    report.append(title, rows, command=f"python -m benchmarks.rare_and_long --set={args.set}",
                  versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

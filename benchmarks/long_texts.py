"""What --long_texts does on real texts: trainings evaluated on the same set.

  python -m benchmarks.long_texts --model=MINILM_TF --data=newwiki_train.json

The task: which article of Wikipedia a paragraph is from, with 32 tokens at a time; every third
paragraph is held out. Runs with windows have fewer epochs, for about as many steps as the others.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks import report

Row = Tuple[str, str]  # label, text

EPOCHS = {"head": 6, "head_tail": 6, "windows": 1}  # a paragraph has some six windows


def rows_of(data: str) -> Tuple[List[Row], List[Row]]:
    """Paragraphs and their articles' titles: for training, and held out."""
    with open(data, encoding="utf-8") as file:
        rows = [(article["title"], " ".join(paragraph["context"].split()))
                for article in json.load(file)["data"] for paragraph in article["paragraphs"]]
    return [row for number, row in enumerate(rows) if number % 3], rows[::3]


def write(rows: Sequence[Row], path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{label}\t{text}\n" for label, text in rows)


def evaluation(model: str, way: str, data_dir: str, output_dir: str) -> Dict[str, Any]:
    """Trains with --long_texts=`way`; returns eval_results.json."""
    subprocess.run(
        [sys.executable, "run_classifier.py", "--task_name=file", f"--data_dir={data_dir}",
         f"--init_checkpoint={model}", f"--output_dir={output_dir}", "--do_train", "--do_eval",
         "--max_seq_length=32", f"--num_train_epochs={EPOCHS[way]}", "--learning_rate=1e-4",
         "--num_gpus=0", f"--long_texts={way}"], cwd=report.ROOT, check=True)
    with open(os.path.join(output_dir, "eval_results.json")) as file:
        return json.load(file)


def row(way: str, results: Dict[str, Any]) -> Dict[str, str]:
    classes = results["per_class"]
    return {"flags": f"`--long_texts={way}`", "accuracy": f"{results['eval_accuracy']:.3f}",
            "macro F1": f"{sum(one['f1'] for one in classes) / len(classes):.3f}",
            "steps": f"{results['global_step']:,}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with a pretrained encoder")
    parser.add_argument("--data", required=True, help="SQuAD's JSON")
    args = parser.parse_args()
    train, dev = rows_of(args.data)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write(train, os.path.join(folder, "train.tsv"))
        write(dev, os.path.join(folder, "dev.tsv"))
        for way in EPOCHS:
            rows.append(row(way, evaluation(args.model, way, folder, os.path.join(folder, way))))
            print(rows[-1], flush=True)
    report.append(
        f"The article of a paragraph, 32 tokens at a time: {len(dev)} held-out paragraphs", rows,
        command="python -m benchmarks.long_texts",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

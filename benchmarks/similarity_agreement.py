"""Are vectors and a training's first loss sentence-transformers'? The same weights and batches.

  python -m benchmarks.similarity_agreement --huggingface_model=MINILM_HF \\
    --sentence_transformers_python=PYTHON --squad_file=squad1_dev.json --sts_file=STS-B/dev.tsv \\
    --work_dir=DIR

A batch is a training file of 32 examples, whose first step is the training's only one: with two
replicas of 16, and with one in two micro-batches, without dropout.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple

import numpy as np

from benchmarks import report
from encoder import model_files
from encoder.convert import convert_from_huggingface
from engine.data import text_files
from engine.devices import devices
from engine.disk import files
from engine.training import summaries
from runs import squad_files
from similarity.vectors import Encoder

BATCH = 32
LENGTH = 256  # as the folder of the model says
SIZES = "384,128,64"  # the peer's
LAYOUTS = {"2 × 16": ("--num_cpu_replicas=2", "--train_batch_size=16"),
           "1 × 16, 2 micro-batches": ("--num_cpu_replicas=1", "--train_batch_size=16",
                                       "--gradient_accumulation_steps=2")}


class Batch(NamedTuple):
    """Examples, and how their loss is computed."""
    rows: List[List[str]]
    loss: str  # one of the peer's LOSSES
    flags: List[str] = []
    scores: List[float] = []


def batches(args) -> Dict[str, Batch]:
    """The batches by their names in the table."""
    paragraphs = [(paragraph.questions[0].text, paragraph.context)
                  for paragraph in squad_files.paragraphs(args.squad_file) if paragraph.questions]
    pairs = [list(pair) for pair in paragraphs[::4][:BATCH]]
    hard = [[*pair, context] for pair, (_, context) in zip(pairs, paragraphs[1::4])]
    table = list(text_files.tsv_rows(args.sts_file))
    names = table[0][1]
    places = [names.index(name) for name in ("sentence1", "sentence2", "score")]
    scored = [[fields[place] for place in places] for _, fields in table[1::7]][:BATCH]
    return {"pairs": Batch(pairs, "ranking"),
            "pairs with a hard negative": Batch(hard, "ranking"),
            "both directions": Batch(pairs, "symmetric", ["--symmetric"]),
            "hard negatives, several sizes": Batch(hard, "matryoshka", [f"--matryoshka={SIZES}"]),
            "scores": Batch([row[:2] for row in scored], "score",
                            scores=[float(row[2]) for row in scored])}


def our_loss(batch: Batch, model: str, folder: str, layout: str) -> float:
    """The loss that the command logs of its first step."""
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "train.jsonl")
    names = ["anchor", "positive", "negative"]
    with open(file, "w", encoding="utf-8") as output:
        for number, row in enumerate(batch.rows):
            entry: Dict[str, Any] = dict(zip(names, row))
            if batch.scores:
                entry["score"] = batch.scores[number]
            output.write(json.dumps(entry) + "\n")
    subprocess.run(
        [sys.executable, "-m", "similarity.run", f"--train_file={file}", "--do_train",
         f"--bert_config_file={model}/without_dropout.json", f"--init_checkpoint={model}",
         f"--output_dir={folder}/out", f"--max_seq_length={LENGTH}", "--num_train_epochs=1",
         *LAYOUTS[layout], *batch.flags], cwd=report.ROOT, check=True)
    return summaries.read_history(f"{folder}/out")["loss"][0][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("huggingface_model", "sentence_transformers_python", "squad_file", "sts_file",
                 "work_dir"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    files.make_directory(args.work_dir, "--work_dir")
    model = os.path.join(args.work_dir, "model")
    convert_from_huggingface(args.huggingface_model, model)
    config = files.read_json(f"{model}/bert_config.json", "config")
    files.write_json(f"{model}/without_dropout.json", {
        **config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    found = batches(args)
    texts = [text for batch in found.values() for row in batch.rows for text in row]
    cases, vectors = (os.path.join(args.work_dir, name) for name in ("cases.json", "vectors.npy"))
    files.write_json(cases, {"texts": texts, "batches": {
        name: batch._asdict() for name, batch in found.items()}})
    answer = subprocess.run(
        [args.sentence_transformers_python, "-m", "benchmarks.peers.sentence_losses",
         f"--model_dir={args.huggingface_model}", f"--input_file={cases}",
         f"--output_file={vectors}"],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    theirs = json.loads(answer.stdout.splitlines()[-1])
    with Encoder(model_files.open_model(model, "--model"), devices.find_devices(
            num_gpus=0, training=False), "float32", None, None) as encoder:
        difference = np.abs(encoder.of_texts(texts) - np.load(vectors)).max()
    rows = [{"batch": f"vectors of {len(texts)} texts", "sentence-transformers": "",
             **dict.fromkeys(LAYOUTS, ""), "largest difference": f"{difference:.1g}"}]
    for name, batch in found.items():
        ours = {layout: our_loss(batch, model, os.path.join(
            args.work_dir, name.replace(" ", "_"), layout.replace(" ", "_")), layout)
            for layout in LAYOUTS}
        difference = max(abs(loss - theirs[name]) for loss in ours.values())
        rows.append({"batch": name, "sentence-transformers": f"{theirs[name]:.6f}",
                     **{layout: f"{loss:.6f}" for layout, loss in ours.items()},
                     "largest difference": f"{difference:.1g}"})
    report.append(
        f"The first loss of {BATCH} examples beside sentence-transformers', MiniLM", rows,
        command="python -m benchmarks.similarity_agreement",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow"),
                  **{package: report.version_of(args.sentence_transformers_python, package)
                     for package in ("sentence_transformers", "torch")}})


if __name__ == "__main__":
    main()

"""Do more negatives make better vectors? The same steps, with the pool of negatives cut into groups.

  python -m benchmarks.pool_of_negatives --huggingface_model=MINILM_HF --data=SHARED_DATA --work_dir=DIR

The first layer of MiniLM learns from 8,000 pairs: WikiSplit's long sentences, each split into two. All
trainings have the same steps of 1,024 pairs. They differ in the groups of 16, 64, 256 or 1,024 pairs from which an
anchor gets its negatives. Small groups stand for cards and micro-batches that exchange no vectors. The last
training mixes texts of any length in a step. Measured on 2,000 other pairs: the rank of the second sentence among
2,000. Draws the figures (matplotlib). Does not repeat what has ended in the work directory.
"""

import argparse
import glob
import os
import random
import re
import shutil
import subprocess
import sys
from typing import Dict, List

import tensorflow.compat.v1 as tf
from safetensors.numpy import load_file, save_file

from benchmarks import report, similarity_quality
from benchmarks.agreement import SEEDS, remembered
from encoder.convert import convert_from_huggingface
from engine.cli import command
from engine.data import plan
from engine.disk import files
from runs import results
from similarity import losses, run as similarity

STEP, GROUPS = 1024, ("16", "64", "256", "1024", "1024-mixed")
UNTRAINED = "1-untrained"
LAYERS, DEV_PAIRS = 1, 2000
METRICS = ("recall_at_1", "recall_at_10", "mrr_at_10")
PICTURE = os.path.join(report.ROOT, "docs", "pool_of_negatives.png")
_RUN = "--run_with_groups_of="


def write_pairs(source: str, folder: str) -> None:
    """Writes the pairs of sentences into which WikiSplit splits one."""
    pairs = []
    for path in sorted(glob.glob(f"{source}/wiki_split_*.tsv")):
        with open(path, encoding="utf-8") as file:
            parts = [line.rstrip("\n").split("\t")[1].split(" <::::> ") for line in file]
        pairs += [pair for pair in parts if len(pair) == 2]
    random.Random(0).shuffle(pairs)
    for name, some in (("dev", pairs[:DEV_PAIRS]), ("train", pairs[DEV_PAIRS:])):
        similarity_quality.write_pairs(f"{folder}/{name}.jsonl", some)


def write_model(source: str, folder: str) -> None:
    """Writes the first layers of a model."""
    shutil.copytree(source, f"{folder}/hf", dirs_exist_ok=True)
    weights = load_file(f"{source}/model.safetensors")
    dropped = re.compile(r"encoder\.layer\.(\d+)\.")
    save_file({name: value for name, value in weights.items()
               if not dropped.match(name) or int(dropped.match(name).group(1)) < LAYERS},
              f"{folder}/hf/model.safetensors")
    config = files.read_json(f"{source}/config.json", "config")
    files.write_json(f"{folder}/hf/config.json", {**config, "num_hidden_layers": LAYERS})
    convert_from_huggingface(f"{folder}/hf", f"{folder}/model")


def run_in_groups(group: str, argv: List[str]) -> None:
    """The command, whose loss is the mean of the losses of groups of so many examples."""
    of_pool = losses.ranking
    number, _, order = group.partition("-")
    size = int(number)
    if order == "mixed":
        plan.WINDOW_BATCHES = 1

    def of_groups(vectors: tf.Tensor, keys: tf.Tensor, *options) -> tf.Tensor:
        starts = range(0, vectors.shape.as_list()[0], size)
        return tf.add_n([of_pool(vectors[start:start + size], keys[start:start + size], *options)
                         for start in starts]) / len(starts)

    losses.ranking = of_groups
    command.run(similarity.main, similarity.define_flags(), usage="", argv=argv)


def train(args, size: str, seed: int) -> Dict[str, float]:
    folder = os.path.join(args.work_dir, f"{size}-{seed}")
    subprocess.run(
        [sys.executable, "-m", "benchmarks.pool_of_negatives", f"{_RUN}{size}",
         *([f"--train_file={args.work_dir}/train.jsonl", "--do_train"] if size != UNTRAINED else []),
         f"--dev_file={args.work_dir}/dev.jsonl", "--do_eval", f"--init_checkpoint={args.work_dir}/model",
         f"--output_dir={folder}", f"--train_batch_size={STEP // 16}", "--gradient_accumulation_steps=16", "--num_cpu_replicas=1",
         f"--num_train_epochs={args.epochs}", f"--learning_rate={args.learning_rate}", "--max_seq_length=32", f"--seed={seed}",
         f"--store_dir={args.work_dir}/store"], cwd=report.ROOT, check=True)
    found = results.read(folder)
    return {metric: found[metric] for metric in METRICS}


def draw(found: Dict[str, List[Dict[str, float]]]) -> None:
    """The mean of each measure over the pool of negatives, and that before the training."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(8, 3), dpi=120, layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(METRICS)), METRICS):
        mean = {size: sum(each[metric] for each in values) / len(values) for size, values in found.items()}
        sizes = [size for size in GROUPS if size.isdigit()]
        axes.plot(sizes, [mean[size] for size in sizes], marker="o")
        axes.axhline(mean[UNTRAINED], linestyle=":", color="gray")
        axes.annotate("untrained", (0, mean[UNTRAINED]), xytext=(0, 3), textcoords="offset points", color="gray")
        axes.set(title=metric, xlabel="pool of negatives", ylim=(0, None))
    with files.atomic_path(PICTURE) as path:
        figure.savefig(path, format="png")


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1].startswith(_RUN):
        run_in_groups(sys.argv[1][len(_RUN):], sys.argv[:1] + sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("huggingface_model", "data", "work_dir"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    args = parser.parse_args()
    os.makedirs(args.work_dir, exist_ok=True)
    write_pairs(f"{args.data}/rewrite", args.work_dir)
    if not os.path.exists(f"{args.work_dir}/model"):
        write_model(args.huggingface_model, args.work_dir)
    found = {size: [remembered(f"{args.work_dir}/{size}-{seed}.json", lambda: train(args, size, seed))
                    for seed in (args.seeds if size != UNTRAINED else args.seeds[:1])]
             for size in (UNTRAINED, *GROUPS)}
    draw(found)
    report.append(
        f"Vectors of WikiSplit's halves after {args.epochs:g} epochs in steps of {STEP:,} pairs, by the "
        f"pool of negatives; seeds {', '.join(map(str, args.seeds))}",
        [{"pool": size, **{metric: ", ".join(f"{each[metric]:.3f}" for each in values)
                           for metric in METRICS}} for size, values in found.items()],
        command="python -m benchmarks.pool_of_negatives",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

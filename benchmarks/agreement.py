"""Does training on 2 x 16 agree with 1 x 32, and both with Hugging Face? Three seeds.

  python -m benchmarks.agreement --task=cola --model=MINILM_TF --huggingface_model=MINILM_HF \\
    --huggingface_python=PYTHON --data_dir=glue/CoLA --work_dir=DIR
  python -m benchmarks.agreement --task=cola --model=MINILM_TF --data_dir=glue/CoLA --work_dir=DIR \\
    --precision=bfloat16 --optimizers

The second command asks whether training in another precision agrees with float32, without the peer.
The same data, weights, batch, epochs, learning rate and schedule. A run that is
finished in the work directory is not repeated, so that this can be interrupted.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Dict, List, NamedTuple, Sequence

from benchmarks import report
from engine.devices.precision import FLOAT32, PRECISIONS
from engine.disk import files

SEEDS = (1, 2, 3)
# Names of the metrics, here and in the peer.
METRICS = {"cola": ("accuracy", "matthews_correlation"), "sst-2": ("accuracy",),
           "sts-b": ("pearson", "spearman")}
# Its own AdamW corrects the moments' bias, so that its first hundreds of steps are smaller.
PEERS = {"adamw": "Hugging Face, 1 × 32",
         "google": "Hugging Face, 1 × 32, without Adam's bias correction, as Google's"}


class Ours(NamedTuple):
    """A training of ours with 32 examples a step."""
    replicas: int
    precision: str

    def __str__(self) -> str:
        changed = "" if self.precision == FLOAT32 else f", {self.precision}"
        return f"ours, {self.replicas} × {32 // self.replicas}{changed}"


def run_ours(args, seed: int, training: Ours, output_dir: str) -> Dict[str, float]:
    model = args.model
    subprocess.run(
        [sys.executable, "run_classifier.py", f"--task_name={args.task}",
         f"--data_dir={args.data_dir}",
         f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
         f"--init_checkpoint={model}/bert_model.ckpt", f"--output_dir={output_dir}",
         "--do_train", "--do_eval", f"--seed={seed}", f"--precision={training.precision}",
         f"--num_cpu_replicas={training.replicas}", f"--num_train_epochs={args.epochs}",
         f"--train_batch_size={32 // training.replicas}"],
        cwd=report.ROOT, check=True)
    with open(os.path.join(output_dir, "eval_results.json")) as file:
        results = json.load(file)
    return {metric: results["eval_accuracy" if metric == "accuracy" else metric]
            for metric in METRICS[args.task]}


def run_huggingface(args, seed: int, optimizer: str) -> Dict[str, float]:
    answer = subprocess.run(
        [args.huggingface_python, "-m", "benchmarks.peers.huggingface",
         f"--model_dir={args.huggingface_model}", f"--data_dir={args.data_dir}", f"--seed={seed}",
         f"--task={args.task}", f"--epochs={args.epochs}", f"--optimizer={optimizer}",
         *(["--group_by_length"] if args.group_by_length else [])],
        cwd=report.ROOT, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return json.loads(answer.stdout.splitlines()[-1])


def remembered(path: str, run) -> Dict[str, float]:
    if not os.path.exists(path):
        files.write_json(path, run())
    with open(path) as file:
        return json.load(file)


def row(name: str, metrics: Sequence[str], results: List[Dict[str, float]]) -> Dict[str, str]:
    return {"training": name,
            **{metric: report.mean_and_deviation([result[metric] for result in results])
               for metric in metrics},
            "each seed": "; ".join(
                ", ".join(f"{result[metric]:.3f}" for metric in metrics) for result in results)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data_dir", "work_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--huggingface_model")
    parser.add_argument("--huggingface_python")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32,
                        help="of a training beside that in float32, in the place of 2 x 16")
    parser.add_argument("--task", choices=sorted(METRICS), required=True)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--group_by_length", action="store_true", help="also the peer's batches")
    parser.add_argument("--optimizers", nargs="*", choices=list(PEERS), default=list(PEERS),
                        help="of the peer")
    args = parser.parse_args()
    if args.optimizers and not (args.huggingface_python and args.huggingface_model):
        parser.error("the peer needs --huggingface_python and --huggingface_model; --optimizers "
                     "without a value leaves it out")
    os.makedirs(args.work_dir, exist_ok=True)

    def path(name):
        return os.path.join(args.work_dir, name)

    metrics = METRICS[args.task]
    ours = [Ours(1, FLOAT32),
            Ours(2, FLOAT32) if args.precision == FLOAT32 else Ours(1, args.precision)]
    rows = [row(str(training), metrics, [
        remembered(path(f"ours-{training.replicas}-{training.precision}-{seed}.json"),
                   lambda: run_ours(args, seed, training, path(
                       f"ours-{training.replicas}-{training.precision}-{seed}")))
        for seed in SEEDS]) for training in ours]
    rows += [row(PEERS[optimizer], metrics, [
        remembered(path(f"huggingface-{optimizer}-{seed}.json"),
                   lambda: run_huggingface(args, seed, optimizer))
        for seed in SEEDS]) for optimizer in args.optimizers]
    versions = {"TensorFlow": report.version_of(sys.executable, "tensorflow")}
    if args.optimizers:
        versions.update({"PyTorch": report.version_of(args.huggingface_python, "torch"),
                         "transformers": report.version_of(args.huggingface_python,
                                                           "transformers")})
    report.append(
        f"Agreement on {args.task}: dev set after {args.epochs:g} epochs, MiniLM encoder, three "
        "seeds (mean ± deviation)",
        rows, command=f"python -m benchmarks.agreement --task={args.task} --epochs={args.epochs:g}"
        + (" --group_by_length" if args.group_by_length else "")
        + (f" --precision={args.precision}" if args.precision != FLOAT32 else "")
        + f" --optimizers {' '.join(args.optimizers)}".rstrip(), versions=versions)


if __name__ == "__main__":
    main()

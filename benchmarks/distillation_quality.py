"""What a student of few layers knows: taught by labels, by a teacher, by more examples.

  python -m benchmarks.distillation_quality --task=cola --data=SHARED_DATA --model=MINILM_TF \\
    --masked_lm=PRETRAINED --work_dir=DIR

The teacher is the fine-tuned encoder. A student has --layers layers of its shape, starts from as
many of its layers and is evaluated at the end of its training. All students take as many steps,
over the examples or, with augmentation, over variants of theirs, and of both stages the first
takes two thirds: what differs is named in the row. Three seeds, of teacher and students alike.
--masked_lm is the folder of a run of benchmarks.pretraining_quality.

What is finished in the work directory is not repeated, and what was interrupted goes on.
"""

import argparse
import os
import subprocess
import sys
from typing import Dict, List, NamedTuple

import numpy as np

from benchmarks import report
from engine.disk import files
from tasks.table import TASKS

FOLDERS = {"cola": "CoLA", "sst-2": "SST-2"}
METRICS = {"cola": ("accuracy", "matthews_correlation", "eval_loss"), "sst-2": ("accuracy", "eval_loss")}
ROUNDS = 4  # of the augmentation


class Way(NamedTuple):
    """A way to teach a student."""
    name: str
    both_stages: bool
    label_weight: float
    augmented: bool


WAYS = [Way("student, labels alone", False, 1.0, False),
        Way("student, stage 2", False, 0.0, False),
        Way("student, stages 1 and 2", True, 0.0, False),
        Way("student, stage 2, augmented", False, 0.0, True),
        Way("student, stages 1 and 2, augmented", True, 0.0, True)]


class Run:
    """A task's trainings, each a command whose result stays in the work directory."""

    def __init__(self, args):
        self._args = args
        self._header = int(TASKS[args.task].train.columns.header)  # lines of it
        self._share = {False: 1.0}

    def path(self, *names: str) -> str:
        return os.path.join(self._args.work_dir, *names)

    def data_dir(self, augmented: bool) -> str:
        return self.path("augmented" if augmented else "data")

    def write_data(self) -> None:
        """Draws the training examples by chance, and copies the dev set."""
        given = os.path.join(self._args.data, "glue", FOLDERS[self._args.task])
        os.makedirs(self.data_dir(False), exist_ok=True)
        for name, count in (("train.tsv", self._args.num_examples), ("dev.tsv", None)):
            lines = read_lines(os.path.join(given, name))
            rows = np.array(lines[self._header:], dtype=object)
            if count:
                rows = rows[np.random.RandomState(0).permutation(len(rows))[:count]]
            path = os.path.join(self.data_dir(False), name)
            if not os.path.exists(path):
                files.write_text(path, "".join(lines[:self._header]) + "".join(rows))

    def augment(self) -> None:
        masked_lm = self._args.masked_lm
        self._command(
            "-m", "augmentation.run", f"--task_name={self._args.task}",
            f"--data_dir={self.data_dir(False)}", f"--output_dir={self.data_dir(True)}",
            f"--vocab_file={masked_lm}/vocab/vocab.txt",
            f"--bert_config_file={masked_lm}/bert_config.json",
            f"--init_checkpoint={masked_lm}/pretrained", f"--N={ROUNDS}",
            f"--glove_embs={self._args.data}/glove/glove.6B.50d.union.txt")
        self._share[True] = self.num_examples(False) / self.num_examples(True)

    def num_examples(self, augmented: bool) -> int:
        path = os.path.join(self.data_dir(augmented), "train.tsv")
        return len(read_lines(path)) - self._header

    def teacher(self, seed: int) -> Dict[str, float]:
        model, output_dir = self._args.model, self.path(f"teacher-{seed}")
        return report.remembered(f"{output_dir}.json", lambda: self._result(
            output_dir, "run_classifier.py", f"--data_dir={self.data_dir(False)}",
            f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
            f"--init_checkpoint={model}/bert_model.ckpt", f"--seed={seed}",
            "--num_train_epochs=3", "--max_seq_length=64"))

    def student(self, way: Way, seed: int) -> Dict[str, float]:
        name = f"{way.name.replace(', ', '-').replace(' ', '_')}-{seed}"
        return report.remembered(self.path(f"{name}.json"), lambda: self._teach(
            way, seed, self.path(name), self.path(f"{name}-stage_1")))

    def _teach(self, way: Way, seed: int, output_dir: str, first_stage: str) -> Dict[str, float]:
        epochs = self._args.epochs * self._share[way.augmented]
        common = ["-m", "distillation.run", f"--data_dir={self.data_dir(way.augmented)}",
                  f"--teacher={self.path(f'teacher-{seed}')}", f"--seed={seed}",
                  f"--store_dir={self.path('store')}"]
        start = f"{self._args.layers},384,12,1536"
        if way.both_stages:
            self._command(*common, *self._training(first_stage), "--stage=intermediate",
                          f"--student={start}", f"--num_train_epochs={epochs * 2 / 3}")
            start, epochs = first_stage, epochs / 3
        return self._result(output_dir, *common, "--stage=prediction", f"--student={start}",
                            f"--num_train_epochs={epochs}",
                            f"--label_weight={way.label_weight:g}",
                            f"--learning_rate={self._args.learning_rate}")

    def _result(self, output_dir: str, *command: str) -> Dict[str, float]:
        self._command(*command, *self._training(output_dir), "--do_eval")
        results = files.read_json(os.path.join(output_dir, "eval_results.json"), "results")
        return {metric: results["eval_accuracy" if metric == "accuracy" else metric]
                for metric in METRICS[self._args.task]}

    def _training(self, output_dir: str) -> List[str]:
        return [f"--task_name={self._args.task}", "--do_train", "--num_gpus=0",
                "--train_batch_size=32", f"--output_dir={output_dir}"]

    def _command(self, *command: str) -> None:
        subprocess.run([sys.executable, *command], cwd=report.ROOT, check=True)


def read_lines(path: str) -> List[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return file.readlines()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(METRICS), required=True)
    for name in ("data", "model", "masked_lm", "work_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--num_examples", type=int, default=8000)
    parser.add_argument("--layers", type=int, default=2, help="of the students")
    parser.add_argument("--epochs", type=int, default=6, help="of the students, both stages")
    parser.add_argument("--learning_rate", type=float, default=5e-5, help="of stage 2")
    args = parser.parse_args()
    for name in ("data", "model", "masked_lm", "work_dir"):
        setattr(args, name, os.path.abspath(getattr(args, name)))
    run = Run(args)
    run.write_data()
    run.augment()
    seeds, metrics = report.SEEDS, METRICS[args.task]
    results = {"teacher, 6 layers": [run.teacher(seed) for seed in seeds]}
    for way in WAYS:
        results[way.name] = []
    for seed in seeds:
        for way in WAYS:
            results[way.name].append(run.student(way, seed))
    report.append(
        f"Distillation on {args.task} to {args.layers} layers: "
        f"{run.num_examples(False):,} examples, {run.num_examples(True):,} with augmentation; "
        "dev set, three seeds (mean ± deviation)",
        [report.row_of_seeds(name, metrics, some) for name, some in results.items()],
        command=f"python -m benchmarks.distillation_quality --task={args.task} "
        f"--num_examples={args.num_examples} --layers={args.layers} --epochs={args.epochs} "
        f"--learning_rate={args.learning_rate:g}",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()

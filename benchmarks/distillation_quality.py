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

import itertools
import os
import shutil
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

    def path(self, name: str) -> str:
        return os.path.join(self._args.work_dir, name)

    def data_dir(self, augmented: bool) -> str:
        return self.path("augmented" if augmented else "data")

    def write_data(self) -> None:
        """Draws the training examples by chance, copies the dev set, and makes the variants."""
        source = f"{self._args.data}/glue/{FOLDERS[self._args.task]}"
        data_dir, masked_lm = self.data_dir(False), self._args.masked_lm
        if not os.path.exists(data_dir):
            with files.atomic_folder(data_dir) as draft:
                lines = read_lines(f"{source}/train.tsv")
                rows = np.random.RandomState(0).permutation(lines[self._header:])
                files.write_text(f"{draft}/train.tsv", "".join(
                    [*lines[:self._header], *rows[:self._args.num_examples]]))
                shutil.copy(f"{source}/dev.tsv", draft)
        report.run_here(
            "-m", "augmentation.run", f"--task_name={self._args.task}", f"--data_dir={data_dir}",
            f"--output_dir={self.data_dir(True)}", f"--vocab_file={masked_lm}/vocab/vocab.txt",
            f"--bert_config_file={masked_lm}/bert_config.json",
            f"--init_checkpoint={masked_lm}/pretrained", f"--N={ROUNDS}",
            f"--glove_embs={self._args.data}/glove/glove.6B.50d.union.txt")

    def num_examples(self, augmented: bool) -> int:
        return len(read_lines(f"{self.data_dir(augmented)}/train.tsv")) - self._header

    def teacher(self, seed: int) -> Dict[str, float]:
        model, name = self._args.model, f"teacher-{seed}"
        return report.remembered(f"{self.path(name)}.json", lambda: self._result(
            name, "run_classifier.py", f"--data_dir={self.data_dir(False)}",
            f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
            f"--init_checkpoint={model}/bert_model.ckpt", f"--seed={seed}",
            "--num_train_epochs=3", "--max_seq_length=64"))

    def student(self, way: Way, seed: int) -> Dict[str, float]:
        name = f"{way.name.replace(', ', '-').replace(' ', '_')}-{seed}"
        return report.remembered(f"{self.path(name)}.json", lambda: self._teach(way, seed, name))

    def _teach(self, way: Way, seed: int, name: str) -> Dict[str, float]:
        share = self.num_examples(False) / self.num_examples(way.augmented)
        epochs, start = self._args.epochs * share, f"{self._args.layers},384,12,1536"
        common = ["-m", "distillation.run", f"--data_dir={self.data_dir(way.augmented)}",
                  f"--teacher={self.path(f'teacher-{seed}')}", f"--seed={seed}",
                  f"--store_dir={self.path('store')}"]
        if way.both_stages:
            first, epochs = f"{name}-stage_1", epochs / 3
            self._train(first, *common, "--stage=intermediate", f"--student={start}",
                        f"--num_train_epochs={2 * epochs}")
            start = self.path(first)
        return self._result(name, *common, "--stage=prediction", f"--student={start}",
                            f"--num_train_epochs={epochs}", f"--label_weight={way.label_weight:g}",
                            f"--learning_rate={self._args.learning_rate}")

    def _result(self, name: str, *command: str) -> Dict[str, float]:
        self._train(name, *command, "--do_eval")
        results = files.read_json(f"{self.path(name)}/eval_results.json", "results")
        return {metric: results["eval_accuracy" if metric == "accuracy" else metric]
                for metric in METRICS[self._args.task]}

    def _train(self, name: str, *command: str) -> None:
        report.run_here(*command, f"--task_name={self._args.task}", "--do_train", "--num_gpus=0",
                        "--train_batch_size=32", f"--output_dir={self.path(name)}")


def read_lines(path: str) -> List[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return file.readlines()


def main() -> None:
    parser = report.parser_of(__doc__, "data", "model", "masked_lm", "work_dir")
    parser.add_argument("--task", choices=sorted(METRICS), required=True)
    parser.add_argument("--num_examples", type=int, default=8000)
    parser.add_argument("--layers", type=int, default=2, help="of the students")
    parser.add_argument("--epochs", type=int, default=6, help="of the students, both stages")
    parser.add_argument("--learning_rate", type=float, default=5e-5, help="of stage 2")
    args = parser.parse_args()
    run = Run(args)
    run.write_data()
    results = {"teacher, 6 layers": [run.teacher(seed) for seed in report.SEEDS],
               **{way.name: [] for way in WAYS}}
    for seed, way in itertools.product(report.SEEDS, WAYS):
        results[way.name].append(run.student(way, seed))
    report.append(
        f"Distillation on {args.task} to {args.layers} layers: "
        f"{run.num_examples(False):,} examples, {run.num_examples(True):,} with augmentation; "
        "dev set, three seeds (mean ± deviation)",
        [report.row_of_seeds(name, METRICS[args.task], seeds) for name, seeds in results.items()])


if __name__ == "__main__":
    main()

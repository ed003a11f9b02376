"""Prints the first texts of a task's test set and run_classifier.py's predictions for them.

    python -m scripts.show_predictions --task_name=cola --data_dir=DIR --output_dir=DIR
"""

import itertools
import os
from typing import Iterator, Sequence, Tuple

from absl import flags

from engine.cli import command
from engine.disk import files
from tasks.examples import read_examples
from tasks.table import find_task

NUM_SHOWN = 3


def predictions(output_dir: str) -> Iterator[Tuple[str, str]]:
    """The lines of test_results.tsv and of predict.txt for each example."""
    paths = [files.require_file(os.path.join(output_dir, name), "predictions")
             for name in ("test_results.tsv", "predict.txt")]
    with open(paths[0]) as probabilities, open(paths[1], encoding="utf-8") as labels:
        for row, label in zip(probabilities, labels):
            yield row.rstrip("\n"), label.rstrip("\n")


def describe(labels: Sequence[str], row: str, prediction: str) -> str:
    """One line: the probability of each label and the prediction, or a regression's number."""
    if not labels:
        return f"{float(prediction):.5g}"
    probabilities = (f"{label} {float(probability):.3f}"
                     for label, probability in zip(labels, row.split("\t")))
    return f"{', '.join(probabilities)} -> {prediction}"


def main(values: flags.FlagValues) -> None:
    """Prints the texts and predictions."""
    task = find_task(values.task_name)[1]
    examples = read_examples(task, task.test, values.data_dir)
    shown = itertools.islice(zip(examples, predictions(values.output_dir)), NUM_SHOWN)
    for example, (row, prediction) in shown:
        print("  " + " | ".join(filter(None, (example.text_a, example.text_b))))
        print("    " + describe(task.kind.labels, row, prediction))


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    for name in ("task_name", "data_dir", "output_dir"):
        flags.DEFINE_string(name, None, "As in run_classifier.py.", flag_values=values)
        flags.mark_flag_as_required(name, flag_values=values)
    return values


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)

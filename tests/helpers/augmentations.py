"""Augments a small file in this process."""

import os

from augmentation import run
from commands import run_here

SETTINGS = {"N": 6, "M": 4, "p": 0.5, "seed": 7}


def write_cola(directory, texts):
    os.makedirs(str(directory))
    lines = [f"x\t{index % 2}\t*\t{text}\n" for index, text in enumerate(texts)]
    (directory / "train.tsv").write_text("".join(lines), encoding="utf-8")
    return directory


def augment_here(model, directory, **flags):
    """Runs the command in this process; returns the lines of the augmented training set."""
    values = {**model._asdict(), "output_dir": directory, "num_cpu_replicas": 1, **SETTINGS,
              **flags}
    run_here(values, run)
    files = [name for name in os.listdir(str(directory)) if name.startswith("train.")
             and not name.endswith(".json")]
    assert len(files) == 1, files
    return (directory / files[0]).read_text(encoding="utf-8").splitlines()

"""A toy run of each command that trains: the files that it reads, and its flags.

Tests that are about every such command go through RUNS; a new command is a new row. What it computes
is in golden_losses.json: a change of its files is one of its losses.
"""

import importlib
import re
from types import ModuleType
from typing import Any, Callable, Dict

import choice_files
import similarity_files
from commands import Flags, run_here
from conftest import TinyModel, write_cola
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading_files import write_made_up
from rewriting import create_data
from rewriting_files import made_up_texts
from tagging_files import columns, made_up

STEPS = 20
SHARED = dict(do_train=True, train_batch_size=4, num_cpu_replicas=2, learning_rate=1e-3)


def _texts(folder) -> Flags:
    return dict(task_name="cola", data_dir=write_cola(folder / "cola", train=80, dev=7, test=5),
                num_train_epochs=2, max_seq_length=LENGTH)


def _masked(folder) -> Flags:
    return dict(input_file=write_frozen(folder / "examples.tfrecord", 80), max_seq_length=LENGTH)


def _steps(folder) -> Flags:
    return dict(_masked(folder), max_predictions_per_seq=PREDICTIONS, num_train_steps=STEPS,
                num_warmup_steps=2)


def _slots(folder) -> Flags:
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    run_here(dict(input_file=folder / "texts.txt", output_dir=folder / "slots", num_negatives=1),
             create_data)
    return dict(data_dir=folder / "slots", num_train_epochs=1, max_seq_length=32)


def _tags(folder) -> Flags:
    (folder / "train.txt").write_text(columns(made_up(80, seed=1), "iob1"))
    (folder / "dev.txt").write_text(columns(made_up(9, seed=2), "iob1"))
    return dict(train_file=folder / "train.txt", dev_file=folder / "dev.txt",
                test_file=folder / "dev.txt", num_train_epochs=2, max_seq_length=32)


def _questions(folder) -> Flags:
    return dict(train_file=write_made_up(folder / "questions.json", contexts=20),
                predict_file=write_made_up(folder / "asked.json", contexts=2), num_train_epochs=1,
                max_seq_length=32, max_query_length=8, doc_stride=10)


def _choices(folder) -> Flags:
    return dict(train_file=choice_files.write(folder / "choices.jsonl", choice_files.made_up(80)),
                dev_file=choice_files.write(folder / "few choices.jsonl", choice_files.made_up(9, 1)),
                test_file=choice_files.write(folder / "more choices.jsonl", choice_files.made_up(9, 2)),
                num_train_epochs=2, max_seq_length=24)


def _pairs(folder) -> Flags:
    return dict(train_file=similarity_files.write(folder / "pairs.tsv", similarity_files.pairs(80)),
                dev_file=similarity_files.write(folder / "asked.tsv", similarity_files.pairs(9, 1)),
                test_file=similarity_files.write(
                    folder / "compared.tsv", similarity_files.pairs(9, 2)),
                num_train_epochs=2, max_seq_length=24)


def _scored(folder) -> Flags:
    return dict(_pairs(folder), train_file=similarity_files.write(
        folder / "scored.tsv", similarity_files.scored(80)))


def _general(folder) -> Flags:
    return dict(_masked(folder), teacher=folder / "model", student="1,8,2,12", num_train_epochs=2)


def _student_of(run: str) -> Callable[[Any], Flags]:
    return lambda folder: dict(_texts(folder), teacher=folder / "run_classifier",
                               student=folder / run)


# Command, with the flags that tell its runs apart → what writes its files and names them. A run may
# need the model in the folder's `model`, and the output directories of those before it.
RUNS: Dict[str, Callable[[Any], Flags]] = {
    "run_classifier": _texts,
    "pretraining.run": _steps,
    "rewriting.run": _slots,
    "tagging.run --crf": _tags,
    "run_squad": _questions,
    "choice.run": _choices,
    "similarity.run": _pairs,
    "similarity.run --loss=score": _scored,
    "distillation.run --stage=general": _general,
    "distillation.run --stage=intermediate": _student_of("distillation.run --stage=general"),
    "distillation.run --stage=prediction": _student_of("distillation.run --stage=intermediate"),
}


def module_of(run: str) -> ModuleType:
    return importlib.import_module(run.split(" ")[0])


def flags_of(run: str, folder, model: TinyModel) -> Flags:
    """Writes the files of a run; returns its flags. The output directory is `folder / run`."""
    known = module_of(run).define_flags()
    named = {name: value or True for name, value in re.findall(r"--(\w+)=?(\w*)", run)}
    from_model = {} if "teacher" in known else {
        name: value for name, value in model._asdict().items() if name in known}
    return {**SHARED, **from_model, **RUNS[run](folder), **named, "output_dir": folder / run}


def train(run: str, folder, model: TinyModel, **changes) -> None:
    """Runs it in this process."""
    run_here({**flags_of(run, folder, model), **changes}, module_of(run))

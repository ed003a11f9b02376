"""The first 20 losses of toy runs are those in golden_losses.json: training is what it was.

Each capability that trains runs through its command, on two replicas with dropout. A change of
the file is a change of what training computes, and belongs in CHANGELOG.md. Each runtime writes
its own part of it:

  WRITE_GOLDEN_LOSSES=1 scripts/test.sh tests/commands/test_golden_losses.py
"""

import json
import os
from typing import Dict, List

import numpy as np
import pytest

import run_squad
from commands import run_here
from conftest import TinyModel
from distillation import run as distillation_run
from golden import GOLDEN, RUNTIME, SHARED, STEPS, losses_of, on_cola, read_golden
from pretraining import run as pretraining_run
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading_files import write_made_up
from reproducible_model import write_model
from rewriting import create_data, run as rewriting_run
from rewriting_files import made_up_texts
from tagging import run as tagging_run
from tagging_files import columns, made_up


STAGES = ("general", "intermediate", "prediction")


def classify_and_pretrain(model: TinyModel, folder) -> Dict[str, List[float]]:
    """The losses of a classifier's training, and of pretraining."""
    run_here(dict(model._asdict(), **on_cola(folder), output_dir=folder / "classifier"))
    run_here(dict(SHARED, bert_config_file=model.bert_config_file,
                  input_file=write_frozen(folder / "examples.tfrecord", 80),
                  init_checkpoint=model.init_checkpoint, max_seq_length=LENGTH,
                  max_predictions_per_seq=PREDICTIONS, num_train_steps=STEPS, num_warmup_steps=2,
                  output_dir=folder / "pretrained"), pretraining_run)
    return {"run_classifier": losses_of(folder / "classifier"),
            "pretraining.run": losses_of(folder / "pretrained")}


def rank_and_tag(model: TinyModel, folder) -> Dict[str, List[float]]:
    """The losses of a scorer's training, and of a tagger's."""
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    run_here(dict(input_file=folder / "texts.txt", output_dir=folder / "slots", num_negatives=1),
             create_data)
    run_here(dict(SHARED, **model._asdict(), data_dir=folder / "slots", max_seq_length=32,
                  num_train_epochs=1, output_dir=folder / "scorer"), rewriting_run)
    (folder / "train.txt").write_text(columns(made_up(80, seed=1), "iob1"))
    run_here(dict(SHARED, **model._asdict(), train_file=folder / "train.txt", crf=True,
                  max_seq_length=32, num_train_epochs=2, output_dir=folder / "tagger"),
             tagging_run)
    return {"rewriting.run --objective=pairwise": losses_of(folder / "scorer"),
            "tagging.run --crf": losses_of(folder / "tagger")}


def distil(model: TinyModel, folder) -> Dict[str, List[float]]:
    """The losses of each stage, each of which starts from the one before."""
    run_here(dict(SHARED, stage="general", teacher=os.path.dirname(model.vocab_file),
                  student="1,8,2,12", input_file=folder / "examples.tfrecord", num_train_epochs=2,
                  max_seq_length=LENGTH, output_dir=folder / "general"), distillation_run)
    for student, stage in zip(STAGES, STAGES[1:]):
        run_here(dict(on_cola(folder), stage=stage, teacher=folder / "classifier",
                      student=folder / student, output_dir=folder / stage), distillation_run)
    return {f"distillation.run --stage={stage}": losses_of(folder / stage) for stage in STAGES}


def read(model: TinyModel, folder) -> Dict[str, List[float]]:
    """The losses of a training to answer questions."""
    run_here(dict(SHARED, **model._asdict(), max_seq_length=32, doc_stride=10, max_query_length=8,
                  train_file=write_made_up(folder / "questions.json", contexts=20),
                  num_train_epochs=1, output_dir=folder / "reader"), run_squad)
    return {"run_squad": losses_of(folder / "reader")}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The losses of each run, by its command."""
    folder = tmp_path_factory.mktemp("first")
    model = write_model(folder / "model")
    found = {}
    for train in (classify_and_pretrain, rank_and_tag, distil, read):
        found.update(train(model, folder))
    if os.environ.get("WRITE_GOLDEN_LOSSES"):
        write_golden(found)
    return found


def write_golden(losses: Dict[str, List[float]]) -> None:
    golden = {**(read_golden() if os.path.exists(GOLDEN) else {}), RUNTIME: losses}
    with open(GOLDEN, "w", encoding="utf-8") as file:
        file.write(json.dumps(golden, indent=1, sort_keys=True) + "\n")


def test_a_run_has_the_losses_that_it_always_had(first):
    golden = read_golden()[RUNTIME]
    assert sorted(first) == sorted(golden)
    for run, losses in first.items():
        # Processors add up in other orders, and the steps carry the differences on.
        np.testing.assert_allclose(losses, golden[run], rtol=1e-4, err_msg=run)
        assert len(set(losses)) == STEPS, f"{run}: a training that moves nothing proves nothing"

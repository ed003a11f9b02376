"""The first 20 losses of toy runs are those in golden_losses.json: training is what it was.

Each capability that trains runs through its command, on two replicas with dropout. A change of
the file is a change of what training computes, and belongs in CHANGELOG.md. Each runtime writes
its own part of it:

  WRITE_GOLDEN_LOSSES=1 scripts/test.sh tests/test_golden_losses.py
"""

import glob
import json
import os
from typing import Dict, List

import numpy as np
import pytest

from commands import run_here
from conftest import TinyModel, write_cola
from distillation import run as distillation_run
from pretraining import run as pretraining_run
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reproducible_model import write_model
from rewriting import create_data, run as rewriting_run
from test_rewriting_data import made_up_texts

import tensorflow.compat.v1 as tf

GOLDEN = os.path.join(os.path.dirname(__file__), "golden_losses.json")
RUNTIME = ".".join(tf.__version__.split(".")[:2])
STEPS = 20
RUNS = ("run_classifier", "pretraining.run", "distillation.run --stage=general",
        "distillation.run --stage=intermediate", "distillation.run --stage=prediction",
        "rewriting.run --objective=pairwise")


def losses_of(output_dir) -> List[float]:
    """The first losses in the event file of a run."""
    path, = glob.glob(os.path.join(str(output_dir), "events.out.tfevents.*"))
    losses = {event.step: value.simple_value for event in tf.train.summary_iterator(path)
              for value in event.summary.value if value.tag == "loss"}
    return [losses[step] for step in range(1, STEPS + 1)]


def train_each(model: TinyModel, folder) -> Dict[str, List[float]]:
    """The losses of RUNS, in their order: a run may start from an earlier one's output."""
    shared = dict(do_train=True, train_batch_size=4, num_cpu_replicas=2, learning_rate=1e-3)
    cola = dict(shared, task_name="cola", data_dir=write_cola(folder / "cola", train=80),
                num_train_epochs=2, max_seq_length=LENGTH)
    examples = write_frozen(folder / "examples.tfrecord", 80)
    run_here(dict(model._asdict(), **cola, output_dir=folder / "classifier"))
    run_here(dict(shared, bert_config_file=model.bert_config_file, input_file=examples,
                  init_checkpoint=model.init_checkpoint, max_seq_length=LENGTH,
                  max_predictions_per_seq=PREDICTIONS, num_train_steps=STEPS, num_warmup_steps=2,
                  output_dir=folder / "pretrained"), pretraining_run)
    run_here(dict(shared, stage="general", teacher=os.path.dirname(model.vocab_file),
                  student="1,8,2,12", input_file=examples, num_train_epochs=2,
                  max_seq_length=LENGTH, output_dir=folder / "general"), distillation_run)
    for stage, student in (("intermediate", "general"), ("prediction", "intermediate")):
        run_here(dict(cola, stage=stage, teacher=folder / "classifier", student=folder / student,
                      output_dir=folder / stage), distillation_run)
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    run_here(dict(input_file=folder / "texts.txt", output_dir=folder / "slots", num_negatives=1),
             create_data)
    run_here(dict(shared, **model._asdict(), data_dir=folder / "slots", max_seq_length=32,
                  num_train_epochs=1, output_dir=folder / "scorer"), rewriting_run)
    return dict(zip(RUNS, map(losses_of, (folder / name for name in (
        "classifier", "pretrained", "general", "intermediate", "prediction", "scorer")))))


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """The losses of RUNS, and again in other directories."""
    found = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        found.append(train_each(write_model(folder / "model"), folder))
    if os.environ.get("WRITE_GOLDEN_LOSSES"):
        write_golden(found[0])
    return found


def read_golden():
    with open(GOLDEN, encoding="utf-8") as file:
        return json.load(file)


def write_golden(losses: Dict[str, List[float]]) -> None:
    golden = {**(read_golden() if os.path.exists(GOLDEN) else {}), RUNTIME: losses}
    with open(GOLDEN, "w", encoding="utf-8") as file:
        file.write(json.dumps(golden, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("run", RUNS)
def test_a_run_has_the_losses_that_it_always_had(run, twice):
    # Processors add up in other orders, and the steps carry the differences on.
    np.testing.assert_allclose(twice[0][run], read_golden()[RUNTIME][run], rtol=1e-4)


@pytest.mark.parametrize("run", RUNS)
def test_the_same_run_on_the_same_machine_has_the_same_losses_bit_for_bit(run, twice):
    assert twice[0][run] == twice[1][run]
    assert len(set(twice[0][run])) == STEPS, "a training that moves nothing proves nothing"

"""From a command's `main` to the gradient, a text passes ten modules at most.

Counted are the modules of the project with a frame on the stack, of any thread,
when the encoder is built or its gradients are asked for.
"""

import os
import sys

import pytest
import tensorflow.compat.v1 as tf

import modeling
import run_classifier
import run_squad
from commands import run_here
from conftest import ROOT, write_cola
from reading_files import write_made_up
from tagging import run as tagging

MOST = 10


def modules_on_stacks():
    """The modules of the project on the stacks of all threads."""
    frames = sys._current_frames()
    found = set()
    for frame in frames.values():
        while frame:
            name = os.path.relpath(frame.f_code.co_filename, ROOT)
            if not name.startswith(
                    ("..", "<", "tests", os.path.join("engine", "cli", "command"))):
                found.add(name)
            frame = frame.f_back
    return found


@pytest.fixture
def passed(monkeypatch):
    """The modules that are on the way, once something was trained."""
    found = {"modeling.py"}  # whose functions are noted as they are called

    def noting(function):
        def call(*args, **kwargs):
            found.update(modules_on_stacks())
            return function(*args, **kwargs)
        return call

    monkeypatch.setattr(tf, "gradients", noting(tf.gradients))
    monkeypatch.setattr(modeling.BertModel, "__init__", noting(modeling.BertModel.__init__))
    return found


def commands(folder):
    """Each command, and the flags that name its training set."""
    (folder / "train.txt").write_text("old B-A\ncat I-A\nsees O\n\n" * 8)
    return {
        "classification": (run_classifier, dict(
            task_name="cola", data_dir=write_cola(folder / "cola", train=16))),
        "tagging": (tagging, dict(train_file=folder / "train.txt")),
        "reading": (run_squad, dict(max_query_length=8, train_file=write_made_up(
            folder / "questions.json", contexts=4)))}


@pytest.mark.parametrize("capability", ["classification", "tagging", "reading"])
def test_a_text_passes_few_modules_on_its_way_to_the_gradient(
        capability, passed, tiny_model, tmp_path):
    module, flags = commands(tmp_path)[capability]
    run_here(dict(tiny_model._asdict(), output_dir=tmp_path / "out", do_train=True,
                  max_seq_length=32, train_batch_size=4, num_train_epochs=1,
                  num_cpu_replicas=1, **flags), module)
    assert {"optimization.py", "runs/command.py"} <= passed
    assert len(passed) <= MOST, sorted(passed)

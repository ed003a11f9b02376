"""From a command's `main` to the gradient, a text passes ten modules at most, and few others run.

Passed are the modules of the project with a frame on the stack, of any thread, when the encoder is built
or its gradients are asked for. A module runs if one of its functions is called until then.
"""

import os
import sys
import threading

import pytest
import tensorflow.compat.v1 as tf

import modeling
from conftest import ROOT, on_tensorflow_2
from toy_runs import train

MOST = 10
MOST_THAT_RUN = 64  # lower it as the number falls


def modules_on_stacks():
    """The modules of the project on the stacks of all threads."""
    frames = sys._current_frames()
    modules = set()
    for frame in frames.values():
        while frame:
            name = os.path.relpath(frame.f_code.co_filename, ROOT)
            if not name.startswith(
                    (".", "<", "tests", os.path.join("engine", "cli", "command"))):
                modules.add(name)
            frame = frame.f_back
    return modules


@pytest.fixture
def passed(monkeypatch):
    """The modules that are on the way, once something was trained."""
    modules = {"modeling.py"}  # whose functions are noted as they are called

    def noting(function):
        def call(*args, **kwargs):
            modules.update(modules_on_stacks())
            return function(*args, **kwargs)
        return call

    monkeypatch.setattr(tf, "gradients", noting(tf.gradients))
    monkeypatch.setattr(modeling.BertModel, "__init__", noting(modeling.BertModel.__init__))
    return modules


@on_tensorflow_2
@pytest.mark.parametrize("run", ["run_classifier", "tagging.run --crf", "run_squad",
                                 "similarity.run"])
def test_a_text_passes_few_modules_on_its_way_to_the_gradient(run, passed, tiny_model, tmp_path):
    train(run, tmp_path, tiny_model, num_train_epochs=1, num_cpu_replicas=1)
    assert {"optimization.py", "runs/training_command.py"} <= passed
    assert len(passed) <= MOST, sorted(passed)


def test_few_modules_run_until_the_first_gradient(tiny_model, tmp_path, monkeypatch):
    ran, gradients, is_over = set(), tf.gradients, threading.Event()

    def note(frame, event, argument):
        if event == "call" and not is_over.is_set() and frame.f_code.co_name != "<module>":
            ran.add(frame.f_code.co_filename)

    def noted_until_here(*args, **kwargs):
        stop()
        return gradients(*args, **kwargs)

    def stop():
        is_over.set()  # a profile ends in its own thread only, and a replica has one of its own
        threading.setprofile(None)
        sys.setprofile(None)

    monkeypatch.setattr(tf, "gradients", noted_until_here)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        train("run_classifier", tmp_path, tiny_model, num_train_epochs=1, num_cpu_replicas=1)
    finally:
        stop()
    modules = {os.path.relpath(path, ROOT) for path in ran if path.endswith(".py")}
    modules = {name for name in modules if not name.startswith((".", "tests"))}
    assert {"modeling.py", "optimization.py", "engine/training/loop.py"} <= modules
    assert len(modules) <= MOST_THAT_RUN, sorted(modules)

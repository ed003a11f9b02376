"""The program in docs/optimizer.md, as it stands; and what the optimizer says to callers."""

import subprocess
import sys
import warnings

import pytest

import multigpu_optimizer
import optimization
from conftest import ROOT, checkpoint_values
from pages import blocks

import tensorflow.compat.v1 as tf

PROGRAM, = blocks("docs/optimizer.md", "python")
# In a process of its own, since the tests' process builds graphs.
EAGER = """
import tensorflow.compat.v1 as tf
import multigpu_optimizer
tf.enable_v2_behavior()
strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
run = getattr(strategy, "run", None) or strategy.experimental_run_v2
with strategy.scope():
    weight, steps = tf.Variable([1.0]), tf.Variable(0)
made = multigpu_optimizer.AdamWeightDecayOptimizer(0.1)
def step():
    made.apply_gradients([(tf.constant([1.0]), weight)], steps)
for call in (step, lambda: tf.function(lambda: run(step))()):
    try:
        call()
    except ValueError as error:
        assert "works in graphs alone: train with a tf.estimator.Estimator" in str(error), error
    else:
        raise AssertionError("it was not refused")
"""


def run_program(code, directory, *arguments):
    (directory / "train.py").write_text(code)
    result = subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=str(directory), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8",
        env={"PYTHONPATH": ROOT, "CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 0, result.stdout


def test_the_program_of_the_page_runs_as_it_stands_on_two_replicas(tmp_path):
    run_program(PROGRAM, tmp_path, "out")
    values = checkpoint_values(str(tmp_path / "out"))
    assert values["global_step"] == 60
    assert (0.9 < values["kernel"]).all() and (values["kernel"] < 1.2).all()


def test_eager_code_is_told_to_use_a_graph(tmp_path):
    run_program(EAGER, tmp_path)


def warnings_of(optimizer):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for index in range(3):  # as a program with three replicas does
            with tf.variable_scope(str(index)):
                weight = tf.get_variable("weight", [2])
            optimizer.apply_gradients([(tf.ones([2]), weight)])
    return [str(each.message) for each in caught if "global_step" in str(each.message)]


@pytest.mark.parametrize("optimizer", [multigpu_optimizer.AdamWeightDecayOptimizer,
                                       multigpu_optimizer.LambOptimizer])
def test_a_call_without_global_step_warns_once(optimizer):
    said, = warnings_of(optimizer(0.1))
    assert "apply_gradients without global_step: no step is counted" in said


def test_the_optimizer_for_googles_callers_does_not_warn():
    assert warnings_of(optimization.AdamWeightDecayOptimizer(0.1)) == []

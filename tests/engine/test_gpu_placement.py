"""A step of every training runs on the cards: nothing in it is left to soft placement.

The graphs are those that the commands train with, built for cards that need not be there.
"""

import dataclasses
import os

import pytest

import gpu_placement
import toy_runs
from benchmarks.step_graph import needed
from conftest import on_tensorflow_1, on_tensorflow_2
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.training import loop
from engine.training.step_hook import StepHook

import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.skipif(not tf.test.is_built_with_cuda(),
                                reason="this TensorFlow registers no kernels for GPUs")

EVERYTHING = dict(precision="float16", gradient_accumulation_steps=2, recompute_layers=True,
                  optimizer="lamb", layer_lr_decay=0.9)
COLUMNS = dict(task_name="file", header=False, label_column="2", text_column="4")
# Command of toy_runs, other flags, cards. What is much like another one is tried on one runtime.
ONE_RUNTIME = {"similarity.run --loss=score": on_tensorflow_2, "choice.run": on_tensorflow_1,
               "distillation.run --stage=general": on_tensorflow_1,
               "distillation.run --stage=intermediate": on_tensorflow_2}
TRAININGS = [
    *(pytest.param(run, {}, 1, marks=ONE_RUNTIME.get(run, ())) for run in toy_runs.RUNS),
    ("run_classifier", dict(init_checkpoint=None, xla=True, **EVERYTHING), 2),
    ("run_classifier", dict(precision="float16"), 1),
    pytest.param("run_classifier", dict(precision="bfloat16"), 1, marks=on_tensorflow_2),
    pytest.param("run_classifier", dict(COLUMNS, label_kind="regression"), 1, marks=on_tensorflow_1),
    pytest.param("run_classifier", dict(COLUMNS, label_kind="multi_label"), 1, marks=on_tensorflow_2),
    ("similarity.run", dict(matryoshka="8,4", gradient_accumulation_steps=2), 2)]


class Captured(Exception):
    """The graph of a training is complete, and no session of it was made."""


@pytest.mark.parametrize("run, changes, cards", TRAININGS)
def test_a_step_runs_on_the_cards(run, changes, cards, tiny_model, tiny_classifier, tmp_path, monkeypatch):
    results, take_steps, original = [], loop.take_steps, StepHook.begin
    on_cards = Devices(tuple(f"/gpu:{card}" for card in range(cards)), "GPU",
                       "nccl" if cards > 1 else "one_device", tf.ConfigProto())
    of_loop = {name: value for name, value in changes.items() if name in EVERYTHING or name == "xla"}

    def begin(self):
        original(self)
        results.extend(tensor.op for tensor in self._values.values())
        # The last thing that a step does on each card.
        results.extend(op for op in tf.get_default_graph().get_operations() if op.type == "AssignAddVariableOp"
                       and "global_step" in op.inputs[0].op.name)
        raise Captured()

    def on_other_devices(of_command, *_):
        settings = of_command.settings._replace(
            training=dataclasses.replace(of_command.settings.training, **of_loop))
        take_steps(of_command._replace(devices=on_cards, settings=settings, batches=()))

    monkeypatch.setattr(StepHook, "begin", begin)
    monkeypatch.setattr(loop, "take_steps", on_other_devices)
    flags = {name: value for name, value in changes.items() if name not in of_loop}
    if "distillation" in run:
        flags.update(student="1,8,2,12", teacher=os.path.dirname(
            tiny_model.vocab_file) if "general" in run else tiny_classifier)
    elif "fit_output_layer" in toy_runs.module_of(run).define_flags():
        flags.update(fit_output_layer=False)
    with pytest.raises(Captured):
        toy_runs.train(run, tmp_path, tiny_model, num_cpu_replicas=1, **flags)
    operations, graph = needed(results), results[0].graph
    in_graph = [op for op in graph.get_operations() if op.type == "ResourceApplyAdam"]
    if "xla" in changes and runtime.COMPILES_UPDATES:
        calls = [op for op in operations if "PartitionedCall" in op.type and "GPU" in op.device
                 and "optimizer_update" in op.get_attr("f").name]
        assert len(calls) == cards and not in_graph
    else:
        assert len([op for op in operations if op in in_graph and "GPU" in op.device]) == len(in_graph) >= cards * 21
    # Of the whole graph: an initializer may hold back its variable.
    assert gpu_placement.kept_on_cpu(graph.get_operations()) == []
    assert gpu_placement.operations_without_kernels(graph, graph.get_operations()) == set()
    assert gpu_placement.copies_through_host(graph, operations) == []
    assert gpu_placement.round_trips(graph, operations) == []

"""Which devices a run gets, and that a step runs on all of them."""

import collections

import pytest
from absl import flags

from engine.cli import device_flags
from engine.devices import devices
from engine.errors import UserError
from engine.training.step_hook import StepHook

import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context


@pytest.mark.skipif(len(tf.config.experimental.list_physical_devices("GPU")) > 0,
                    reason="for machines without a GPU")
def test_without_a_gpu_a_run_is_on_one_cpu_and_asking_for_gpus_is_an_error(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    assert devices.find_devices().describe() == "CPU:0"
    for wanted in (dict(num_gpus=2), dict(replicas_per_gpu=2)):
        with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES='5,6'"):
            devices.find_devices(devices.DeviceSettings(**wanted))
    with pytest.raises(UserError, match="show it cards, or use the CPU: --num_cpu_replicas=2 instead$"):
        devices.find_devices(devices.DeviceSettings(num_gpus=2))
    values = flags.FlagValues()
    device_flags.define(values)
    values(["command", "--n_gpus=1", "--replicas_per_gpu=2"])
    with pytest.raises(UserError, match="^--n_gpus=1, but .*use the CPU: --num_cpu_replicas=2 instead$"):
        device_flags.find_devices(values, training=False)


@pytest.mark.parametrize("choices, error", [
    (dict(num_gpus=0, replicas_per_gpu=2), "replicas_per_gpu=2 needs a GPU"),
    (dict(num_cpu_replicas=2, all_reduce="ring"), "ring is for several workers, and .* has 1")])
def test_choices_that_exclude_each_other_are_refused(choices, error):
    with pytest.raises(UserError, match=error):
        devices.find_devices(devices.DeviceSettings(**choices))


def test_strategies_find_the_devices_of_the_sessions():
    """Those for several workers open all that the process has: by default every card, and one processor."""
    config = context.context().config
    assert config.device_count["CPU"] == 4 and not config.device_count["GPU"]  # as conftest.py has set


def test_a_session_has_the_devices_of_the_run_and_a_step_runs_on_all_of_them(
        tiny_model, tmp_path, monkeypatch):
    """TensorFlow would run the replicas of devices that are not there on the first one."""
    from trainings import settings, train, training_source
    names, nodes = set(), collections.Counter()

    def after_create_session(self, session, coord):
        names.update(device.name.split("device:")[1] for device in session.list_devices())

    def before_run(self, run_context):
        return original(self, run_context)._replace(
            options=tf.RunOptions(output_partition_graphs=True))

    def after_run(self, run_context, run_values):
        nodes.update(node.device.split("device:")[1]
                     for graph in run_values.run_metadata.partition_graphs for node in graph.node)
    original = StepHook.before_run
    for method in (after_create_session, before_run, after_run):
        monkeypatch.setattr(StepHook, method.__name__, method)
    source = training_source(tiny_model, tmp_path)
    train(tiny_model, source, 3, settings(tmp_path / "out", 2, num_train_steps=1),
          config_changes={"num_hidden_layers": 1})
    assert names - {"XLA_CPU:0"} == {"CPU:0", "CPU:1", "CPU:2"}
    assert min(nodes["CPU:1"], nodes["CPU:2"]) > 250, nodes

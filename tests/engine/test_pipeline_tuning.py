"""No pipeline is tuned by a thread that the end of a session would wait for."""

import numpy as np
import pytest

from conftest import cpu_devices
from engine.data import batches
from engine.data.plan import TrainingPlan
from engine.devices import runtime

import tensorflow.compat.v1 as tf

LENGTHS = np.full(8, 4)
SOURCE = batches.Source(
    LENGTHS, lambda indices, length: {"ids": np.zeros([len(indices), length], np.int32)}, 4)


def training_dataset():
    return batches.training_dataset(
        SOURCE, TrainingPlan(LENGTHS, 4, seed=7), replicas=range(2), per_replica_batch_size=2,
        first_step=0, last_step=1)


def test_pipelines_say_so():
    feed = batches.InferenceFeed(SOURCE, num_replicas=1, num_ready=1)
    for dataset in (feed.dataset(), training_dataset()):
        options = dataset.options()
        tuned = (options.experimental_optimization.autotune if runtime.IS_TENSORFLOW_1
                 else options.autotune.enabled)
        assert tuned is False


@pytest.mark.skipif(runtime.IS_TENSORFLOW_1, reason="its sessions do not wait")
def test_so_do_the_buffers_that_a_strategy_adds():
    from tensorflow.core.framework import dataset_options_pb2
    with tf.Graph().as_default() as graph:
        strategy = cpu_devices(2).strategy()
        strategy.make_input_fn_iterator(lambda _: training_dataset())
        made = [operation for operation in graph.get_operations()
                if operation.type in ("MakeIterator", "MultiDeviceIteratorInit")]
    assert [operation.type for operation in made].count("MakeIterator") == 2
    for operation in made:
        dataset, are_tuned = operation.inputs[0].op, []
        while dataset.type == "OptionsDataset":
            options = dataset_options_pb2.Options.FromString(dataset.get_attr("serialized_options"))
            if options.autotune_options.WhichOneof("optional_enabled"):
                are_tuned.append(options.autotune_options.enabled)
            dataset = dataset.inputs[0].op
        assert are_tuned == [False], operation.name

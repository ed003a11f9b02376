"""No pipeline is tuned by a thread that the end of a session would wait for."""

import numpy as np

from engine.data import batches
from engine.data.plan import TrainingPlan
from engine.devices import runtime


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

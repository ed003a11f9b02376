"""Pretraining on N replicas and in micro-batches steps like one batch, whatever each part masks."""

import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values
from encoder.pretraining_tfrecords import Sizes
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.data.plan import TrainingPlan
from pretraining import model
from pretraining.data import load_records
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from trainings import recorded, run_loop, settings

import tensorflow.compat.v1 as tf

STEPS = 8


@pytest.fixture(scope="module")
def records(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    path = write_frozen(folder / "examples.tfrecord", 60)
    sizes = Sizes(LENGTH, PREDICTIONS, tiny_model.config().vocab_size)
    return load_records(path, "--input_file", sizes, str(folder),
                        vocab_file=None, dynamic_padding=True)


def train(tiny_model, records, num_replicas, output_dir, batch, micro_batches):
    forward = model.forward_of(tiny_model.config(), next_sentences=True)
    run_loop(forward, records.source(), num_replicas,
             settings(output_dir, batch, num_train_steps=STEPS,
                      gradient_accumulation_steps=micro_batches),
             checkpoints.open_checkpoint(tiny_model.init_checkpoint))
    return checkpoint_values(str(output_dir))


def features_of_steps(records, num_replicas, batch, names):
    """The features of each replica in each step, [STEPS][num_replicas]."""
    source = records.source()
    plan = TrainingPlan(source.lengths, batch * num_replicas, 7)
    dataset = batches.training_dataset(
        source, plan, replicas=range(num_replicas), per_replica_batch_size=batch, first_step=0,
        last_step=STEPS)
    element, _ = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        return [[session.run([element[name] for name in names]) for _ in range(num_replicas)]
                for _ in range(STEPS)]


def test_1x16_4x4_and_2x2x4_end_with_the_same_variables_slots_step_and_loss(
        tiny_model, records, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    runs = [train(tiny_model, records, replicas, tmp_path / str(replicas), batch, micro_batches)
            for replicas, batch, micro_batches in ((1, 16, 1), (4, 4, 1), (2, 2, 4))]
    assert np.median(norms[:STEPS]) > 1, "clipping must be active for this to mean anything"
    for start in range(STEPS, len(runs) * STEPS, STEPS):
        np.testing.assert_allclose(losses[start:start + STEPS], losses[:STEPS], rtol=1e-5)
    for run in runs[1:]:
        assert_same_training(runs[0], run)
        assert run["global_step"] == STEPS
    initial = checkpoint_values(tiny_model.init_checkpoint)
    moved = runs[0]["bert/embeddings/word_embeddings"] - initial["bert/embeddings/word_embeddings"]
    assert np.abs(moved).max() > 1e-4, "a training that moves nothing proves nothing"


def test_parts_of_a_batch_weigh_differently_and_all_know_what_the_whole_weighs(records):
    steps = features_of_steps(records, 4, 4, ["masked_lm_weights", "masked_lm_mean_weight"])
    for step in steps:
        whole = sum(weights.sum() for weights, _ in step)
        for _, mean_weight in step:
            np.testing.assert_allclose(mean_weight, [(whole + 1e-5) / 16] * 4, rtol=1e-6)
    weights_of_parts = [{float(weights.sum()) for weights, _ in step} for step in steps]
    assert max(map(len, weights_of_parts)) > 1, "with equal parts, means of means would do"

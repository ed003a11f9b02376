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
from pretraining_files import LENGTH, PREDICTIONS, write_frozen, write_unmasked
from trainings import recorded, run_loop, settings

import tensorflow.compat.v1 as tf

STEPS = 8


@pytest.fixture(scope="module", params=["frozen", "drawn"])
def records(request, tiny_model, tmp_path_factory):
    """Examples that have their masks, and such that get others in each epoch."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "frozen":
        path = write_frozen(folder / "examples.tfrecord", 60)
    else:
        path = write_unmasked(folder / "examples.tfrecord", tiny_model, 60)
    sizes = Sizes(LENGTH, PREDICTIONS, tiny_model.config().vocab_size)
    return load_records(path, "--input_file", sizes, str(folder),
                        vocab_file=tiny_model.vocab_file, dynamic_padding=True)


def train(tiny_model, records, num_replicas, run_settings):
    forward = model.forward_of(tiny_model.config(), next_sentences=True)
    run_loop(forward, records.source(run_settings.training.seed), num_replicas, run_settings,
             checkpoints.open_checkpoint(tiny_model.init_checkpoint))
    return checkpoint_values(run_settings.output_dir)


def of_size(output_dir, batch, **changes):
    return settings(output_dir, batch, num_train_steps=STEPS, **changes)


def features_of_steps(records, num_replicas, batch, names):
    """The features of each replica in each step, [STEPS][num_replicas]."""
    source = records.source(7)
    plan = TrainingPlan(source.lengths, batch * num_replicas, 7)
    dataset = batches.training_dataset(
        source, plan, replicas=range(num_replicas), per_replica_batch_size=batch, first_step=0,
        last_step=STEPS)
    element, _ = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        return [[session.run([element[name] for name in names]) for _ in range(num_replicas)]
                for _ in range(STEPS)]


# Replicas, batch and micro-batches.
RUNS = {"frozen": ((1, 16, 1), (4, 4, 1)), "drawn": ((1, 16, 1), (2, 2, 4))}


def test_1x16_4x4_and_2x2x4_end_with_the_same_variables_slots_step_and_loss(
        tiny_model, records, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    runs = []
    for replicas, batch, times in RUNS["drawn" if records.scheme else "frozen"]:
        runs.append(train(tiny_model, records, replicas, of_size(
            tmp_path / str(len(runs)), batch, gradient_accumulation_steps=times)))
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


def test_masks_are_new_in_each_epoch_and_the_same_on_any_number_of_replicas(records):
    names = ["input_ids", "masked_lm_ids", "masked_lm_positions"]
    seen = {}
    for num_replicas in (1, 4):
        steps = features_of_steps(records, num_replicas, 16 // num_replicas, names)
        seen[num_replicas] = [np.concatenate([part[0] for part in step]) for step in steps]
    for one, four in zip(seen[1], seen[4]):
        np.testing.assert_array_equal(one, four)
    source, everything = records.source(7), np.arange(len(records))
    first, second = (source.fetch_for_step(everything, np.full(len(records), epoch), LENGTH)
                     for epoch in (0, 1))
    changed = not np.array_equal(first["input_ids"], second["input_ids"])
    assert changed == (records.scheme is not None)
    for features in (first, second):  # what is guessed is what was there
        original = features["input_ids"].copy()
        rows, slots = np.nonzero(features["masked_lm_weights"])
        original[rows, features["masked_lm_positions"][rows, slots]] = \
            features["masked_lm_ids"][rows, slots]
        assert (original != 4).all()
        first.setdefault("original", original)
        np.testing.assert_array_equal(original, first["original"])

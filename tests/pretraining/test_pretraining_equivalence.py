"""Pretraining on N replicas and in micro-batches steps like one batch, whatever each part masks."""

import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values
from encoder.pretraining_tfrecords import Sizes
from engine.checkpoints import checkpoints
from pretraining import model
from pretraining.data import load_records
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from trainings import recorded, run_loop, settings

STEPS = 8


@pytest.fixture(scope="module")
def records(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    path = write_frozen(folder / "examples.tfrecord", 60)  # of 1, 2 or 6 masked tokens each
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

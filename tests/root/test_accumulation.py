"""k micro-batches of B step like one batch of k * B, on several replicas, too."""

import numpy as np
import pytest

from commands import run_here
from conftest import assert_same_training, checkpoint_values, write_cola
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.model import Outputs
from trainings import STEPS, recorded, settings, train, training_source

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


def steep(model):
    """A model whose gradients are clipped."""
    classify = classifier.forward_of(model.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        return Outputs(30 * outputs.loss, outputs.predictions)
    return forward


def test_1x16_1x4x4_and_2x2x4_end_with_the_same_variables_slots_step_and_loss(
        tiny_model, source, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    runs = []
    for replicas, batch, times in ((1, 16, 1), (1, 4, 4), (2, 2, 4)):
        runs.append(train(
            tiny_model, source, replicas,
            settings(tmp_path / str(len(runs)), batch, gradient_accumulation_steps=times),
            forward=steep(tiny_model)))
    assert np.median(norms[:STEPS]) > 1, "clipping must be active for this to mean anything"
    np.testing.assert_allclose(losses[STEPS:2 * STEPS], losses[:STEPS], rtol=1e-5)
    np.testing.assert_allclose(losses[2 * STEPS:], losses[:STEPS], rtol=1e-5)
    np.testing.assert_allclose(norms[STEPS:2 * STEPS], norms[:STEPS], rtol=1e-4)
    for run in runs[1:]:
        assert_same_training(runs[0], run)  # the same names, too: nothing more in a checkpoint
        assert run["global_step"] == STEPS
    initial = checkpoint_values(tiny_model.init_checkpoint)
    moved = np.abs(runs[0]["bert/pooler/dense/kernel"] - initial["bert/pooler/dense/kernel"])
    assert moved.max() > 1e-4, "a training that moves nothing proves nothing"


def test_micro_batches_and_steps_drop_different_values_and_runs_of_a_seed_the_same(
        tiny_model, source, tmp_path):
    """All batches hold the same example, so that all differences come from dropout."""
    same = batches.Source(
        lengths=source.lengths[:1].repeat(64), max_length=source.max_length,
        fetch=lambda indices, length: source.fetch(np.zeros(len(indices), np.int64), length))
    seen = []
    classify = classifier.forward_of(tiny_model.config(hidden_dropout_prob=0.2), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        logits = outputs.predictions["logits"]
        note = tf.numpy_function(lambda values: seen.append(values) or np.float32(0),
                                 [logits[0]], tf.float32)
        return Outputs(outputs.loss + tf.stop_gradient(tf.ensure_shape(note, [])),
                       outputs.predictions)

    def run(name):
        seen.clear()
        values = train(tiny_model, same, 2, settings(
            tmp_path / name, 2, gradient_accumulation_steps=3, num_train_steps=2,
            learning_rate=1e-12), forward=forward)
        return values, np.array(sorted(map(tuple, seen)))

    values, logits = run("once")
    assert logits.shape == (2 * 3 * 2, 2)
    assert len(np.unique(logits.round(6), axis=0)) == len(logits), "each mask is another"
    again, same_logits = run("again")
    np.testing.assert_array_equal(logits, same_logits)
    for name, value in values.items():
        np.testing.assert_array_equal(value, again[name], err_msg=name)


def test_the_command_counts_steps_and_examples_with_accumulation(tiny_model, tmp_path, capsys):
    run_here(dict(
        tiny_model._asdict(), task_name="cola", data_dir=write_cola(tmp_path / "cola", train=50),
        do_train=True, output_dir=tmp_path / "out", max_seq_length=24, train_batch_size=2,
        num_cpu_replicas=2, gradient_accumulation_steps=3, num_train_epochs=2))
    assert "2 replicas x 2 x 3 accumulated = 12 examples per step; 50 examples x 2 epochs = " \
        "8 steps" in capsys.readouterr().err
    assert checkpoints.latest(str(tmp_path / "out")).global_step == 8

"""N replicas x B examples step exactly like one replica x N * B: what the project is for."""


import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values
from encoder import classifier
from engine.model import Outputs
from multigpu_optimizer import UPDATES
from trainings import STEPS, recorded, settings, train, train_in_two_parts, training_source


@pytest.fixture(scope="module")
def tiny_model(two_layers):
    """The first layer computes all positions, the last one those that the classifier reads."""
    return two_layers


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


@pytest.fixture(scope="module")
def clipped(tiny_model):
    """A model whose loss is so large that clipping is active."""
    classify = classifier.forward_of(tiny_model.config(), 2)

    def forward(features, mode):
        outputs = classify(features, mode)
        return Outputs(30 * outputs.loss, outputs.predictions)
    return forward


@pytest.fixture(scope="module", params=(False, True))
def corrected(request):
    """The settings of trainings without and with bias correction."""
    return dict(adam_bias_correction=request.param)


@pytest.fixture(scope="module")
def of_one_replica(tiny_model, source, clipped, corrected, tmp_path_factory):
    """The values, losses and gradient norms of 1 x 16."""
    with pytest.MonkeyPatch.context() as patch:
        losses, norms = recorded(patch)
        whole = settings(tmp_path_factory.mktemp("whole"), 16, **corrected)
        return train(tiny_model, source, 1, whole, forward=clipped), losses, norms


@pytest.mark.parametrize("num_replicas, times", ((2, 1), (4, 1), (2, 2)))
def test_1x16_2x8_4x4_and_2x4x2_end_with_the_same_variables_slots_step_and_loss(
        tiny_model, source, clipped, of_one_replica, corrected, num_replicas, times, tmp_path,
        monkeypatch):
    expected, expected_losses, norms = of_one_replica
    assert np.median(norms) > 1, "clipping must be active for this to mean anything"
    losses, _ = recorded(monkeypatch)
    values = train(tiny_model, source, num_replicas, settings(
        tmp_path, 16 // num_replicas // times, gradient_accumulation_steps=times, **corrected),
        forward=clipped)
    assert_same_training(expected, values)
    assert values["global_step"] == STEPS
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    initial = checkpoint_values(tiny_model.init_checkpoint)
    moved = np.abs(values["bert/pooler/dense/kernel"] - initial["bert/pooler/dense/kernel"])
    assert moved.max() > 1e-4, "a training that moves nothing proves nothing"


def test_what_4_replicas_began_one_replica_ends(
        tiny_model, source, clipped, of_one_replica, corrected, tmp_path, monkeypatch):
    resumed = train_in_two_parts(tiny_model, source, (4, 1), tmp_path, crash_step=8, forward=clipped,
                                 monkeypatch=monkeypatch, changes=(corrected, corrected))
    assert_same_training(of_one_replica[0], resumed)


def test_an_interrupted_run_with_dropout_ends_bit_for_bit_like_the_uninterrupted_one(
        tiny_model, source, corrected, tmp_path, monkeypatch):
    dropout = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    whole = train(tiny_model, source, 2, settings(tmp_path / "whole", 8, **corrected),
                  config_changes=dropout)
    resumed = train_in_two_parts(
        tiny_model, source, (2, 2), tmp_path / "parts", crash_step=7, monkeypatch=monkeypatch,
        config_changes=dropout, changes=(corrected, corrected))
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)


def test_updates_are_counted_from_the_step_of_a_checkpoint_without_correction(
        tiny_model, source, tmp_path, monkeypatch):
    plain, late = (train_in_two_parts(
        tiny_model, source, (2, 2), tmp_path / str(corrected), crash_step=8,
        monkeypatch=monkeypatch, changes=({}, dict(adam_bias_correction=corrected)))
        for corrected in (False, True))
    assert UPDATES not in plain
    assert late.pop(UPDATES) == STEPS
    assert sorted(late) == sorted(plain)

"""Frozen layers: no gradient, no slots, no exchange."""

import pytest

import optimization
from commands import ends_with_error, on_cola, run_here
from conftest import assert_same_training, checkpoint_values
from trainings import settings, train

import tensorflow.compat.v1 as tf

FROZEN = {"freeze_layers=1": (dict(freeze_layers=1), ("bert/embeddings/", "/layer_0/")),
          "freeze_embeddings": (dict(freeze_embeddings=True), ("bert/embeddings/",)),
          "freeze_layers=2": (dict(freeze_layers=2), ("bert/embeddings/", "/layer_"))}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_weights_keep_every_byte_and_have_no_slots_and_replicas_step_alike(
        name, two_layers, source, tmp_path):
    changes, parts = FROZEN[name]
    initial = checkpoint_values(two_layers.init_checkpoint)
    values = train(two_layers, source, 2, settings(tmp_path / "2", 8, num_train_steps=6, **changes))
    for parameter, value in initial.items():
        is_frozen = any(part in parameter for part in parts)
        assert (values[parameter].tobytes() == value.tobytes()) == is_frozen, parameter
        assert (f"{parameter}/adam_m" in values) != is_frozen
    if name == "freeze_layers=1":
        assert_same_training(train(two_layers, source, 1, settings(
            tmp_path / "1", 16, num_train_steps=6, **changes)), values)


def test_nothing_is_computed_backward_or_exchanged_below_the_frozen_layers(
        two_layers, source, tmp_path, monkeypatch):
    steps, create_update = [], optimization.create_update

    def create(gradients, *args, **kwargs):
        calls = [op for op in tf.get_default_graph().get_operations()
                 if op.type.endswith("PartitionedCall")]
        steps.append((len(calls), {variable.op.name for _, variable in gradients}))
        return create_update(gradients, *args, **kwargs)
    monkeypatch.setattr(optimization, "create_update", create)
    for name, changes in {"all": {}, "some": dict(freeze_layers=1)}.items():
        train(two_layers, source, 1, settings(tmp_path / name, 16, num_train_steps=1, **changes))
    (all_calls, _), (calls, exchanged) = steps
    assert calls == all_calls - 2  # of the embeddings' normalization and of layer_0
    assert not [name for name in exchanged if "embeddings" in name or "layer_0" in name]


@pytest.fixture
def flags(two_layers, tmp_path):
    return on_cola(two_layers, tmp_path, train=32)


@pytest.mark.parametrize("number", (3, -1))
def test_more_layers_than_the_encoder_has_are_one_line(number, flags, capsys):
    with ends_with_error(capsys, f"--freeze_layers={number}", "between 0 and 2"):
        run_here(dict(flags, freeze_layers=number))


def test_a_run_does_not_thaw_when_it_resumes(flags, capsys):
    run_here(dict(flags, freeze_layers=1))
    with ends_with_error(capsys, "as if they were frozen", "--freeze_layers"):
        run_here(dict(flags, freeze_layers=0, num_train_epochs=2))

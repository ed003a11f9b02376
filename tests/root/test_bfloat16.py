"""--precision of 16 bits: which machines have it, and predictions. Trainings: test_mixed_precision."""

import numpy as np
import pytest

from commands import answers_of, ends_with_error, on_cola, run_here
from conftest import cpu_devices, on_tensorflow_1, sentences
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data.batches import Source
from engine.devices import runtime
from engine.devices.devices import check_precision
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Outputs
from trainings import settings, train

import tensorflow.compat.v1 as tf

ROUNDING = 2.0 ** -9  # relative, of a bfloat16



# --- Which machines have it --------------------------------------------------------------


@on_tensorflow_1
def test_tensorflow_1_refuses_it_in_one_line_and_leaves_nothing(tiny_model, tmp_path, capsys):
    with ends_with_error(capsys, "--precision=bfloat16: TensorFlow 1.15", "use TensorFlow 2.15"):
        run_here(on_cola(tiny_model, tmp_path, train=8, precision="bfloat16"))
    assert not (tmp_path / "out").exists()


def test_float16_on_the_cpu_is_warned_of(capsys):
    check_precision("bfloat16" if runtime.HAS_BFLOAT16 else "tf32", cpu_devices(1))
    assert not capsys.readouterr().err
    check_precision("float16", cpu_devices(1))
    assert "a hundred times slower than float32 on the CPU" in capsys.readouterr().err


def test_tensorflows_own_mixed_precision_is_refused_with_the_flag_that_chooses(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION", "0")
    check_precision("tf32", cpu_devices(1))
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION", "1")
    with pytest.raises(UserError, match="^TF_ENABLE_AUTO_MIXED_PRECISION .*choose with --precision$"):
        check_precision("tf32", cpu_devices(1))


# --- Inference ---------------------------------------------------------------------------


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_predictions_are_those_of_float32_but_for_rounding(tiny_classifier, tmp_path, narrow):
    expected, actual = (np.array([list(answer["probabilities"].values()) for answer in answers_of(
        tiny_classifier, sentences(20, 5), tmp_path, precision=name)]) for name in ("float32", narrow))
    np.testing.assert_allclose(actual, expected, atol=4 * ROUNDING)
    assert np.abs(actual - expected).max() > 1e-6


def test_each_checkpoint_that_a_predictor_restores_is_cast_on_every_replica(
        tiny_model, source, tmp_path):
    train(tiny_model, source, 1, settings(
        tmp_path, 8, num_train_steps=4, save_checkpoints_steps=2, learning_rate=1e-2))
    narrow = cpu_devices(2)._replace(dtype=tf.float16)
    forward = classifier.forward_of(tiny_model.config(), 2)

    def predicted(*steps):
        with Predictor(forward, narrow) as predictor:
            for step in steps:
                predictor.restore(checkpoints.open_checkpoint(str(tmp_path / f"model.ckpt-{step}")))
                yield predictor.predict(source, 8)["logits"]

    (first, second), (alone,) = predicted(2, 4), predicted(4)
    assert np.abs(first - second).max() > 0.01, "the steps between must show"
    np.testing.assert_array_equal(second, alone)


def test_a_prediction_that_float16_cannot_hold_is_refused():
    def forward(features, mode):
        tf.get_variable("unused", [])  # no model is without
        wide = tf.cast(features["input_ids"], mode.computation.dtype) * 60000
        return Outputs(None, {"logits": tf.cast(wide * 2, tf.float32)})

    source = Source(np.array([1]), lambda indices, length: {
        "input_ids": np.ones([len(indices), length], np.int32)}, max_length=1)
    for dtype in (tf.float32, tf.float16):
        with Predictor(forward, cpu_devices(1)._replace(dtype=dtype)) as predictor:
            if dtype == tf.float32:
                assert predictor.predict(source, 1)["logits"].tolist() == [[120000]]
                continue
            with pytest.raises(UserError, match="--precision=float16: logits of an example"):
                predictor.predict(source, 1)

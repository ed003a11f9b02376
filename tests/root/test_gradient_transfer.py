"""--gradient_transfer=float16: the update is that of float32 but for rounding."""

import numpy as np

from conftest import checkpoint_values
from engine.training.settings import TrainingSettings
from optimization import LossScale
from optimizer_runs import FLOAT16_ROUNDING
from trainings import STEPS, recorded, settings, train


def test_gradients_of_float16_cross_in_float16_unless_told_otherwise():
    transfers = {(precision, given): TrainingSettings(
        precision=precision, gradient_transfer=given).transfer
        for precision in ("tf32", "bfloat16", "float16") for given in (None, "float32")}
    assert {key for key, transfer in transfers.items() if transfer == "float16"} == {
        ("float16", None)}


def relative_error(actual, expected, initial) -> float:
    """Of what a training of the model changed, over all its variables but the keys' biases.

    Those have only noise for a gradient.
    """
    names = [name for name in initial if "key/bias" not in name]
    difference, moved = (np.sqrt(sum(np.sum((one[name] - other[name]) ** 2) for name in names))
                         for one, other in ((actual, expected), (expected, initial)))
    return difference / moved


def test_updates_are_those_of_float32_but_for_rounding(tiny_model, source, tmp_path, monkeypatch):
    losses, norms = recorded(monkeypatch)
    initial = checkpoint_values(tiny_model.init_checkpoint)
    runs = [train(tiny_model, source, 2, settings(tmp_path / transfer, 8, learning_rate=1e-3,
                                                  gradient_transfer=transfer))
            for transfer in ("float32", "float16")]
    np.testing.assert_allclose(norms[STEPS:STEPS + 2], norms[:2], rtol=FLOAT16_ROUNDING)
    np.testing.assert_allclose(losses[STEPS:], losses[:STEPS], rtol=0.001)
    assert losses[STEPS - 1] < losses[0] - 0.05, "a training that learns nothing proves nothing"
    assert 1e-6 < relative_error(runs[1], runs[0], initial) < 10 * FLOAT16_ROUNDING
    assert sorted(set(runs[1]) - set(runs[0])) == sorted(LossScale.NAMES)

"""A trained model that reads texts, open for any number of predictions."""

import contextlib
from typing import Callable, Iterable

from absl import flags

from engine import settings
from engine.cli import device_flags
from engine.inference import PredictionSettings, Predictor
from runs import ensemble, kinds
from runs.head import AnyResult, Encoded


class OpenModel(contextlib.ExitStack):
    """A trained model, or an ensemble, on the devices that flags select.

    The first prediction builds the graph and reads the checkpoint; the end of the context frees both.

    Attributes:
        reader: how the model reads texts.
        checkpoints: the model's, or those of an ensemble.

    Args:
        model_dir: the output directory of a training, or an export.
        values: the flags of PredictionSettings and of devices.

    Raises:
        UserError: no such model, no such devices.
    """

    def __init__(self, model_dir: str, values: flags.FlagValues):
        super().__init__()
        self._batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
        trained, self.reader = kinds.open_reader(model_dir)
        devices = device_flags.find_devices(values, training=False)
        self.checkpoints = ensemble.members(model_dir) or [trained.checkpoint]
        # A predictor for each model of an ensemble: a text that arrives alone waits for no restoring.
        self._models = [(self.enter_context(Predictor(self.reader.forward, devices)), checkpoint)
                        for checkpoint in self.checkpoints]

    def predict(self, some: Encoded, advance: Callable[[int], None] = lambda count: None
                ) -> Iterable[AnyResult]:
        """A result for each text; `advance` is called with the number of examples of each step."""
        return some.decode(ensemble.predict(
            self._models, self.reader.mean, some.source, self._batch_size, advance))

"""A trained model that reads texts, open for any number of predictions."""

import contextlib
from typing import Callable, Iterable

from absl import flags

from engine import settings
from engine.cli import device_flags
from engine.inference import PredictionSettings, Predictor
from runs import kinds
from runs.head import AnyResult, Encoded


class OpenModel(contextlib.ExitStack):
    """A trained model on the devices that flags select.

    The first prediction builds the graph and reads the checkpoint; the end of the context frees both.

    Attributes:
        reader: how the model reads texts.
        checkpoint: the model's.

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
        self.checkpoint = trained.checkpoint
        self._predictor = self.enter_context(Predictor(self.reader.forward, devices))
        self._predictor.restore(self.checkpoint)

    def predict(self, some: Encoded, advance: Callable[[int], None] = lambda count: None
                ) -> Iterable[AnyResult]:
        """A result for each text; `advance` is called with the number of examples of each step."""
        return some.decode(self._predictor.predict(some.source, self._batch_size, advance))

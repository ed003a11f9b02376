"""A trained model as a function of texts, for programs and engines such as Ray, Spark and Beam."""

import contextlib
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from absl import flags

from engine import settings
from engine.cli import device_flags
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from runs import ensemble, kinds
from runs.rows import Example

Text = Union[str, Sequence[str]]  # or two texts, for a model that takes pairs


class TextPredictor:
    """Predicts for lists of texts as `python -m runs.predict --format=jsonl` does for files.

    It opens the model on first use, on every visible GPU. A pickled one is its path and flags: each
    process opens the model for itself.

    Args:
        model_dir: the output directory of a training, or an export, that the process can read.
        options: values of --predict_batch_size and of the flags of devices, such as `precision`.

    Raises:
        UserError: on first use, if there is no model that reads texts.
    """

    def __init__(self, model_dir: str, **options: Any):
        self._model_dir, self._options = model_dir, options
        self._open: Optional["_OpenModel"] = None

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def __call__(self, texts: Sequence[Text]) -> List[Dict[str, Any]]:
        """A dictionary for each text, in order; {"error": why} for one that the model cannot read."""
        if not self._open:
            self._open = _OpenModel(self._model_dir, self._options)
        return self._open.predict(texts) if len(texts) else []

    def close(self) -> None:
        """Frees the model's memory; the next call opens it again."""
        if self._open:
            self._open.close()
        self._open = None


class _OpenModel:
    def __init__(self, model_dir: str, options: Dict[str, Any]):
        values = flags.FlagValues()
        settings.define_flags(values, PredictionSettings)
        device_flags.define(values)
        values(["", *(f"--{name}={value}" for name, value in options.items())])
        trained, self._reader = kinds.open_reader(model_dir)
        self._batch_size = settings.from_flags(values, PredictionSettings).predict_batch_size
        devices = device_flags.find_devices(values, training=False)
        self._stack = contextlib.ExitStack()
        self._models = [
            (self._stack.enter_context(Predictor(self._reader.forward, devices)), checkpoint)
            for checkpoint in ensemble.members(model_dir) or [trained.checkpoint]]

    def predict(self, texts: Sequence[Text]) -> List[Dict[str, Any]]:
        some = self._reader.encode([self._example(text) for text in texts])
        predictions = ensemble.predict(self._models, self._reader.mean, some.source, self._batch_size,
                                       lambda count: None)
        return [{"error": result} if isinstance(result, str) else result.entry
                for result in some.decode(predictions)]

    def _example(self, text: Text) -> Example:
        first, second = (text, None) if isinstance(text, str) else _pair(text)
        takes_pairs = self._reader.takes_pairs
        if takes_pairs not in (None, second is not None):
            raise UserError("the model takes " + ("pairs of texts, each as (first, second)"
                                                  if takes_pairs else "single texts"))
        return Example(first, second, None)

    def close(self) -> None:
        self._stack.close()


def _pair(text: Sequence[str]) -> Tuple[str, str]:
    first, second = text
    return first, second

"""A trained model as a function of texts, for programs and engines such as Ray, Spark and Beam."""

from typing import Any, Dict, List, Optional, Sequence, Union

from absl import flags

from engine import log, settings
from engine.cli import device_flags
from engine.errors import UserError
from engine.inference import PredictionSettings
from runs import kinds
from runs.capability import Reader
from runs.rows import Example
from runs.stream import OpenModel

Text = Union[str, Sequence[str]]  # or several texts, for a model that reads them together


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
        self._open: Optional[OpenModel] = None
        self._reader: Optional[Reader] = None

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_open": None, "_reader": None}

    def __call__(self, texts: Sequence[Text]) -> List[Dict[str, Any]]:
        """A dictionary for each text, in order; {"error": why} for one that the model cannot read."""
        if isinstance(texts, (str, bytes, dict)) or not hasattr(texts, "__len__"):
            raise UserError(f"TextPredictor takes a list of texts, not {log.brief(repr(texts))}")
        if not self._open:
            self._open = self._open_model()
        if not len(texts):
            return []
        examples = list(map(self._example, texts))
        readable = [example for example in examples if not isinstance(example, str)]
        predicted = iter(self._open.predict(self._reader.encode(readable)) if readable else ())
        results = (each if isinstance(each, str) else next(predicted) for each in examples)
        return [{"error": result} if isinstance(result, str) else result.entry for result in results]

    def close(self) -> None:
        """Frees the model's memory; the next call opens it again."""
        if self._open:
            self._open.close()
        self._open = None

    def _open_model(self) -> OpenModel:
        values = flags.FlagValues()
        settings.define_flags(values, PredictionSettings)
        device_flags.define(values)
        values(["", *(f"--{name}={value}" for name, value in self._options.items())])
        trained, self._reader = kinds.open_reader(self._model_dir)
        return OpenModel(self._reader.forward, trained.checkpoint, values)

    def _example(self, text: Text) -> Union[Example, str]:
        """A text as the model reads it, or why it is none: tables have None and NaN where a text is missing."""
        takes = self._reader.takes
        are_several = not isinstance(text, (str, bytes, dict, set)) and hasattr(text, "__len__") and len(text) > 1
        texts = tuple(text) if are_several else (text,)
        wanted = f"the model takes {takes.describe('({})')}"
        if not all(isinstance(each, str) for each in texts) or len(texts) > 2 and not takes.are_several:
            return f"{wanted}, and not {log.brief(repr(text))}"
        if not takes.allows(len(texts)):
            raise UserError(wanted)
        return Example(texts)

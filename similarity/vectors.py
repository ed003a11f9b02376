"""Vectors of texts, computed with a trained model on all replicas."""

from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np
from absl import flags

from encoder.model_files import ModelFiles
from engine.disk import files
from engine.errors import UserError
from runs import kinds
from runs.capability import Encoded
from runs.rows import Example
from runs.stream import OpenModel
from similarity import data
from similarity.capability import TextEncoder
from similarity.evaluation import shortened


class Encoder(OpenModel):
    """Gives texts vectors of length 1.

    Args:
        trained: a model for similarity.
        values: the flags of `OpenModel`.
        size: the number of components, the first of the model's; None: all of them.

    Attributes:
        size: the number of components.
        query_prefix: put before queries.
    """

    def __init__(self, trained: ModelFiles, values: flags.FlagValues, size: Optional[int]):
        self._model, self._precision = kinds.model_in(trained, TextEncoder), values.precision
        self.query_prefix = self._model.similarity.query_prefix
        full_size = self._model.config.hidden_size
        self.size = size or full_size
        if self.size > full_size:
            raise UserError(
                f"--vector_size={size}: the model's vectors have {full_size} components")
        super().__init__(self._model.forward(), trained.checkpoint, values)

    def model_facts(self) -> Dict[str, Any]:
        """Everything that determines a text's vector, under names for people."""
        return {
            **self._model.encoder_facts(),
            "checkpoint": files.hash_of_file(self.checkpoint.index_file),
            "pooling": self._model.similarity.pooling, "--precision": self._precision,
            "--vector_size": self.size}

    def of_texts(self, texts: Sequence[str], advance: Callable[[int], None]) -> np.ndarray:
        """Vectors, float32 [n, D]; at least one text. `advance` gets the numbers of finished texts."""
        encoded = self.encoded(texts)
        vectors = self.predict(encoded, advance)
        advance(len(texts) - len(encoded.source.lengths))  # those that equal others
        return vectors

    def encoded(self, texts: Sequence[str]) -> Encoded:
        """At least one text as the model reads it; the results are the vectors, float32 [n, D]."""
        texts_of = data.encode([Example((text,)) for text in texts], self._model.encoding, "")
        return Encoded(texts_of.source(), lambda predictions: shortened(
            predictions["vectors"], self.size)[texts_of.numbers[:, 0]])

    def report(self, name: str) -> None:
        """See `Encoding.report`."""
        self._model.encoding.report(name)

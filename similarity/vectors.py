"""Vectors of texts, computed with a trained model on all replicas."""

from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np

from encoder.model_files import ModelFiles
from engine.devices.devices import Devices
from engine.disk import files
from engine.errors import UserError
from engine.inference import Predictor
from similarity import data
from similarity.capability import TextEncoder
from similarity.files import Example
from similarity.rows import shortened


class Encoder:
    """Gives texts vectors of length 1. Use it as a context manager: it holds a session.

    Args:
        trained: a model for similarity.
        batch_size: of a replica; None: the default of --predict_batch_size.
        size: the number of components, the first of the model's; None: all of them.
    """

    def __init__(self, trained: ModelFiles, devices: Devices, precision: str,
                 batch_size: Optional[int], size: Optional[int]):
        self._trained, self._batch_size, self._precision = trained, batch_size, precision
        self._model = TextEncoder.open(trained)
        self.size = size or self._model.config.hidden_size
        if self.size > self._model.config.hidden_size:
            raise UserError(f"--vector_size={size}: the model's vectors have "
                            f"{self._model.config.hidden_size} components")
        self._predictor = Predictor(self._model.forward(), devices)
        self._predictor.restore(trained.checkpoint)

    def __enter__(self) -> "Encoder":
        return self

    def __exit__(self, *exception) -> None:
        self._predictor.__exit__(*exception)

    def facts(self) -> Dict[str, Any]:
        """Everything that determines a text's vector, under names for people."""
        return {
            **self._model.encoder_facts(),
            # The index holds a checksum of every tensor.
            "checkpoint": files.hash_of_file(f"{self._trained.checkpoint.path}.index"),
            "pooling": self._model.similarity.pooling, "--precision": self._precision,
            "--vector_size": self.size}

    def of_queries(self, texts: Sequence[str],
                   advance: Callable[[int], None] = lambda count: None) -> np.ndarray:
        """Vectors [n, D] of queries, before which the model may want a prefix."""
        return self.of_texts([self._model.similarity.query_prefix + text for text in texts], advance)

    def of_texts(self, texts: Sequence[str],
                 advance: Callable[[int], None] = lambda count: None) -> np.ndarray:
        """Vectors, float32 [n, D]; at least one text. `advance` gets the numbers of finished texts."""
        encoded = data.encode([Example((text,)) for text in texts], self._model.encoding, "")
        source = encoded.source()
        vectors = self._predictor.predict(source, self._batch_size, advance)["vectors"]
        advance(len(texts) - len(source.lengths))  # those that equal others
        return shortened(vectors, self.size)[encoded.numbers[:, 0]]

    def report(self, name: str) -> None:
        """See `Encoding.report`."""
        self._model.encoding.report(name)
